"""What the verbs that use a bundle have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.loading import load_bundle
from seqattn.bundle.nodes import Node
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.generation.base import Search
from seqattn.generation.span_search import SpanSearch
from seqattn.ops.memory import keep_freed_memory
from seqattn.training.task_options import task_class

Split = Literal["train", "val", "test"]


@dataclass(frozen=True, kw_only=True)
class BundleRun:
    """A run on a trained model.

    Args:
        bundle: the model's path.
        device: where the model runs.
        trust: packages, beside this one, that parts of the bundle may come from.
        ensemble: paths of other bundles that answer with it, as `seqattn.load`.
        settings: the plain settings that it was built from.
    """

    bundle: str
    device: str = "cpu"
    trust: Sequence[str] = ()
    ensemble: Sequence[str] = ()
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> str:
        """All that answer, as titles name them."""
        return " + ".join([self.bundle, *self.ensemble])

    def load(self, search: Search | SpanSearch | None = None) -> TextBundle | SpanBundle:
        """The bundle, for a search that gives what its model does.

        Raises:
            UserError: where it cannot be used, or not with that search.
        """
        keep_freed_memory()
        found = load_bundle(self.bundle, self.device, self.trust, self.ensemble)
        if search is not None and search.output != found.output:
            wanted = "spans" if found.output == "spans" else "beam, greedy or sampling"
            raise UserError(f"this bundle gives {found.output} and takes generation={wanted}")
        return found


@dataclass(frozen=True, kw_only=True)
class ScoredRun(BundleRun):
    """A run that scores what a bundle makes of a split.

    Args:
        bundle, device, trust: as `BundleRun`.
        data: where the texts or questions come from.
        generation: the search.
        scorer: how outputs are compared with their references.
        split: train, val or test.
        cache_dir: of the data; None for the usual place.
    """

    data: Any
    generation: Search | SpanSearch
    scorer: Any
    split: Split = "val"
    cache_dir: str | None = None

    def load(self, search: Search | SpanSearch | None = None) -> TextBundle | SpanBundle:
        """As `BundleRun`; a scorer's threshold, which no answer would meet, is refused."""
        threshold = getattr(self.scorer, "threshold", 1.0)
        if isinstance(search, SpanSearch) and threshold != 1.0:
            raise UserError(
                "what is left unanswered is the search's to say: leave scorer.threshold out, and "
                f"set generation.threshold={max(0.0, threshold):g}"
            )
        return super().load(search)

    def read_texts(self, bundle: TextBundle) -> Texts:
        """The split, as the task of the bundle reads it.

        Raises:
            UserError: where it cannot be read, or has no references.
        """
        texts = self.load_split(task_class(bundle.config).source(self.data))
        if "target" not in texts.column_names:
            raise UserError(f"the {self.split} split has no references to score against")
        return Texts.of(texts)

    def load_split(self, source: Any) -> Any:
        """The rows of the split in a source of data."""
        return source.load(self.split, Path(self.cache_dir) if self.cache_dir else None)
