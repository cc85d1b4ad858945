"""A source that mixes others, by weights that change in stages."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from seqattn.checking import Count, shown
from seqattn.data.base import MissingSplit, Source
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.mixture.opustrainer import read_opustrainer
from seqattn.extras.mixture.rows import MixtureRows, errors_of
from seqattn.extras.mixture.schedule import Stage
from seqattn.roles import Role
from seqattn.storage import user_path

if TYPE_CHECKING:
    from datasets import Dataset

_OF_ONE = {"id", "document", "links"}
"""Columns that are not read of several sources together."""
_NAME = re.compile(r"[a-zA-Z]\w*")
_UNTIL = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) (?:steps?|pass(?:es)? of (\S+))")


class Mixture(Source):
    """Pairs of several sources; the batches of an optimizer step are of one of them.

    Only the sources with a weight in a stage are trained on; others may serve as val and test.

    Args:
        sources: by name.
        stages: each with keys `weights` (by name, relative shares of the optimizer steps; None for
            all sources, in proportion to their sizes) and `until` ("N steps", or "N passes of
            NAME"; None for no end, of the last stage). None for one stage of all sources.
        epoch_steps: optimizer steps of an epoch; None for those of one pass over each source.
        val, test: names of the sources of these splits; None for all that have them.
        opustrainer: a YAML file of OpusTrainer, with further sources and with the stages.

    Attributes:
        stages: the same, parsed.
        sources: those that are trained on.

    Raises:
        UserError: for stages that are not valid, or sources of other kinds than pairs.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        stages: Sequence[Any] | None = None,
        epoch_steps: Count | None = None,
        val: str | list[str] | None = None,
        test: Annotated[str | list[str] | None, Role.SCORE] = None,
        opustrainer: str | None = None,
    ) -> None:
        for name in sources:
            if not _NAME.fullmatch(name):
                raise UserError(f"data.sources must have names of letters and digits, got {name!r}")
        datasets, self._notes = dict[str, Source](), list[str]()
        if opustrainer is not None:
            if stages is not None:
                raise UserError("data.stages and data.opustrainer are mutually exclusive")
            datasets, stages, self._notes = read_opustrainer(user_path(opustrainer))
            if common := sources.keys() & datasets.keys():
                raise UserError(f"{opustrainer} and data.sources both have {common.pop()}")
        # by name, as the ranks of a run may read its settings in another order
        self._all: dict[str, Any] = dict(sorted({**sources, **datasets}.items()))
        if not self._all:
            raise UserError(
                "data.sources is empty; add data@data.sources.NAME=CHOICE and its keys, such as "
                "data@data.sources.clean=parallel_text data.sources.clean.root=DIR"
            )
        for name, source in self._all.items():
            if not isinstance(source, Source) or source.yields != "pairs" or source.sources:
                kind = shown(source) if isinstance(source, Mapping) else type(source).__name__
                raise UserError(f"data.sources.{name} must be a source of pairs, got {kind}")
        self.stages = [
            self._stage(node, f"data.stages[{number}]", number + 1 < len(stages or ()))
            for number, node in enumerate(stages or [{}])
        ]
        equal = dict.fromkeys(self._all, 1.0)
        weights = [equal if stage.weights is None else stage.weights for stage in self.stages]
        self.sources = {
            name: source
            for name, source in self._all.items()
            if any(shares.get(name) for shares in weights)
        }
        self._epoch_steps, self._splits = epoch_steps, dict[str, list[str]]()
        for split, names in (("val", val), ("test", test)):
            if names:
                self._splits[split] = [names] if isinstance(names, str) else names
                self._check_names(self._splits[split], f"data.{split}")
        documents = (source.documents for source in self._all.values())
        self.documents = next(filter(None, documents), None)

    def _stage(self, node: Any, key: str, must_end: bool) -> Stage:
        if not isinstance(node, Mapping) or not node.keys() <= {"weights", "until"}:
            raise UserError(f"{key} must have the keys weights and until, got {shown(node)}")
        weights, until = node.get("weights"), node.get("until")
        if weights is not None:
            numbers: list[Any] = [*weights.values()] if isinstance(weights, Mapping) else [None]
            valid = all(type(n) in (int, float) and 0 <= n < float("inf") for n in numbers)
            if not valid or not any(numbers):
                raise UserError(
                    f"{key}.weights must be numbers by the names of sources, not negative and not "
                    f"all 0, got {shown(weights)}"
                )
            self._check_names(weights, f"{key}.weights")
        if until is None:
            if must_end:
                raise UserError(f"{key}.until is missing: only the last stage may have no end")
            return Stage(weights)
        match = _UNTIL.fullmatch(str(until))
        length = float(match[1]) if match else 0.0
        if not match or not length or (match[2] is None and not length.is_integer()):
            what = '"1000 steps" or "2 passes of NAME"'
            raise UserError(f"{key}.until must be such as {what}, got {shown(until)}")
        if match[2] is not None:
            self._check_names([match[2]], f"{key}.until")
            if weights is not None and not weights.get(match[2]):
                raise UserError(f"{key}.until waits for {match[2]}, which has no weight in it")
        return Stage(weights, length, match[2])

    def _check_names(self, names: Any, key: str) -> None:
        for name in names:
            if name not in self._all:
                names = ", ".join(self._all)
                raise UserError(f"{key} names {shown(name)}; data.sources has {names}")

    def _of(self, split: str) -> Mapping[str, Source]:
        """Return the sources that a split is read from, if they have it."""
        if split == "train":
            return self.sources
        return {name: self._all[name] for name in self._splits.get(split, self._all)}

    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        from datasets import concatenate_datasets  # takes seconds to import

        from seqattn.data.arrow_tables import content_digest

        tables, missing = dict[str, Any](), list[MissingSplit]()
        for name, source in self._of(split).items():
            try:
                with errors_of(name):
                    tables[name] = source.load(split, cache_dir)
                    if "target" not in tables[name].column_names:
                        raise UserError("it has no targets; set its target_column or target_suffix")
            except MissingSplit as error:
                if split in self._splits:
                    raise
                missing.append(error)
        if not tables:
            hint = f"; or read it from another source by data.{split}=NAME"
            raise MissingSplit(f"{missing[0]}{hint}")
        if len(tables) == 1:
            [(name, table)] = tables.items()
            if split in self._all[name].parts:
                self.parts = {**self.parts, split: self._all[name].parts[split]}
            return table
        columns = [{*table.column_names} - _OF_ONE for table in tables.values()]
        common = set.intersection(*columns)
        if split != "train" and (rare := set.union(*columns) - common):
            raise UserError(
                f"only some of the sources of {split} have {' and '.join(sorted(rare))}; choose "
                f"those of one kind by data.{split}=NAME"
            )
        parts = [table.select_columns(sorted(common)) for table in tables.values()]
        if split == "train":  # a copy teaches the vocabulary nothing
            parts = [*{content_digest(part): part for part in parts}.values()]
        return concatenate_datasets(parts)

    def mixed(self, data: Any) -> MixtureRows:
        settings = data.tokenizer_config, data.options, str(data.cache_dir)
        tokenizer, rows = data.tokenizer, {}
        for number, (name, source) in enumerate(self.sources.items()):
            order, more = (data.seed + number, tokenizer), data.parts.get(name, {})
            with errors_of(name):
                rows[name] = type(data)(source, *settings, *order, **more).split("train")
        return MixtureRows(rows, self.stages, self._epoch_steps)

    def grouped(self, column: str) -> Self:
        mixture = super().grouped(column)
        mixture._all = {name: source.grouped(column) for name, source in self._all.items()}
        mixture.sources = {name: mixture._all[name] for name in self.sources}
        return mixture

    @cached_property
    def _prepared(self) -> Any:
        """Source whose vocabulary all use; None to train one."""
        sources = {source.tokenizer: source for source in self.sources.values()}
        prepared = {tokenizer.fingerprint: sources[tokenizer] for tokenizer in sources if tokenizer}
        if len(prepared) > 1:
            raise UserError(
                "data.sources were prepared with different vocabularies; prepare them with "
                "vocabulary=DIR of one"
            )
        return next(iter(prepared.values()), None)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._prepared and self._prepared.tokenizer

    @property
    def tokenizer_config(self) -> Any:
        """Settings of that vocabulary; None without one."""
        return getattr(self._prepared, "tokenizer_config", None)

    def files(self, split: str) -> list[Path]:
        files: list[Path] = []
        for name, source in self._of(split).items():
            with suppress(MissingSplit), errors_of(name):
                files += source.files(split)
        return files

    def alignments_of(self, split: str) -> Path | None:
        files = [source.alignments_of(split) for source in self._of(split).values()]
        return files[0] if len(files) == 1 else None

    @property
    def source_name(self) -> str:
        names = {source.source_name for source in self.sources.values()}
        return names.pop() if len(names) == 1 else ""

    def origin(self, split: str) -> str:
        parts = []
        for name, source in self._of(split).items():
            with suppress(MissingSplit):
                parts.append(f"{name} ({source.origin(split)})")
        return ", ".join(parts)

    def notices(self) -> list[str]:
        lines = (line for source in self._all.values() for line in source.notices())
        return [*self._notes, *lines]
