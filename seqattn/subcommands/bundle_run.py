"""Base classes of subcommands that use a bundle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.engine import Engine, PyTorch
from seqattn.bundle.load import load_bundle
from seqattn.data.base import MissingSplit, Texts
from seqattn.errors import UserError
from seqattn.generation.base import AnySearch
from seqattn.metrics.groups import labels_of
from seqattn.metrics.several import one_scorer
from seqattn.ops.memory import keep_freed_memory
from seqattn.settings.nodes import Node
from seqattn.training.task_options import task_class

Split = Literal["train", "val", "test"]


@dataclass(frozen=True, kw_only=True)
class BundleRun:
    """Base class of subcommands that use a bundle.

    Args:
        bundle: path of the bundle.
        device: device of the model.
        trust: packages, besides seqattn, that parts of the bundle may come from.
        ensemble: paths of other bundles to average with, as in `seqattn.load`.
        engine: runs the searches of the bundle.
        settings: the plain settings that it was built from.
    """

    bundle: str
    device: str = "cpu"
    trust: Sequence[str] = ()
    ensemble: Sequence[str] = ()
    engine: Engine = field(default_factory=PyTorch)
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> str:
        """Names of all bundles, for titles."""
        return " + ".join([self.bundle, *self.ensemble])

    def load(self, search: AnySearch | None = None) -> Bundle:
        """Load the bundle, and check that a search fits it.

        Raises:
            UserError: if it cannot be used, or not with that search.
        """
        keep_freed_memory()
        bundle = load_bundle(self.bundle, self.device, self.trust, self.ensemble)
        if search is not None and search.output != bundle.output:
            supported = "|".join(bundle.searches)
            raise UserError(f"this bundle outputs {bundle.output}; use generation={supported}")
        return self.engine.attach(bundle)


@dataclass(frozen=True, kw_only=True)
class ScoredRun(BundleRun):
    """Base class of subcommands that score a bundle's outputs for a split.

    Args:
        bundle, device, trust: as `BundleRun`.
        data: source of the rows.
        generation: the search.
        scorer: compares outputs with their references; a list for several.
        split: train, val or test.
        cache_dir: cache of the data; None for the default.
    """

    data: Any
    generation: AnySearch
    scorer: Any
    split: Split = "val"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "scorer", one_scorer(self.scorer))

    def load(self, search: AnySearch | None = None) -> Bundle:
        """Load the bundle, and check that search and scorer fit."""
        if search is not None:
            search.check_scorer(self.scorer)
        return super().load(search)

    def read_rows(self, bundle: Bundle, group: str | int | None = None) -> Texts:
        """Read the split for the bundle's task; `group` labels the rows, as in `labels_of`.

        Raises:
            UserError: if it cannot be read, or has no references or no such column.
        """
        source = task_class(bundle.config).source(self.data)
        if group is not None and labels_of(group, ()) is None:
            source = source.grouped(str(group))
        try:
            table = source.load(self.split, Path(self.cache_dir) if self.cache_dir else None)
        except MissingSplit as error:
            hint = "; or use split=val" * (self.split == "test")
            raise UserError(f"{error}{hint}") from error
        if source.parts:
            self.data.parts = source.parts  # of a copy
        rows = bundle.rows(table, self.split)
        labels = None if group is None else labels_of(group, rows.sources) or rows.groups
        if group is not None and len({*(labels or ())}) < 2:
            what = "is not a column of the data, or equal in all rows"
            raise UserError(f"group={group} {what}; use source or prefix:N")
        return replace(rows, groups=labels)


def check_read(bundle: Bundle, **inputs: str | None) -> None:
    """Raise UserError for inputs, by their keys, that a bundle does not read."""
    given = [key for key, value in inputs.items() if value is not None]
    if given and {*given} != {*bundle.reads}:
        names, words = " and ".join(bundle.reads), " ".join(f"{key}=..." for key in bundle.reads)
        raise UserError(f"this bundle reads {names}, got {' and '.join(given)}; use {words}")
