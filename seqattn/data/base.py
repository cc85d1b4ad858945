"""Base classes of data sources, and rows as plain lists."""

import glob
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from seqattn.data.source_ids import Headed
from seqattn.errors import UserError
from seqattn.storage import is_file, user_path

if TYPE_CHECKING:
    from datasets import Dataset

    from seqattn.data.batch import Batch
    from seqattn.data.loader import TokenRows
    from seqattn.data.options import LoaderOptions
    from seqattn.data.tokenizer import Tokenizer

HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Splits and their usual names on the hub."""
HELD_OUT = {"val": "hold_out", "test": "hold_out_test"}
"""Keys for the sizes of splits that are drawn from train."""
TOGETHER = {"source": ("source",), "pair": ("source", "target"), "document": ("document",)}
"""Columns by which rows are drawn together: by `hold_out_by`, or by documents if there are any."""
Part = tuple[npt.NDArray[np.int64], int]
"""Ascending numbers of a split's rows among those of its files, and how many these are."""
Files = Mapping[str, str | Sequence[str] | None]
"""One file, several files or name patterns for each split."""


class MissingSplit(UserError):
    """A split that the data does not have."""


class Source(ABC):
    """Text in splits: train, val, test.

    To add a source, write a subclass in your own package and a `conf/data/NAME.yaml` that names it
    by `_target_` and gives its constructor's arguments; then `data=NAME` works:

        class Proverbs(Source):
            yields = "pairs"

            def load(self, split, cache_dir=None):
                return datasets.Dataset.from_dict({"source": [...], "target": [...]})
    """

    yields: ClassVar[str] = "pairs"
    """Kind of rows, which a task requires: pairs of texts, unless a task has others."""
    redraws: ClassVar[bool] = False
    """True if training pairs are drawn anew in each epoch, by `redraw`."""
    held_out: Mapping[str, float] = {}
    """Sizes of the splits that are drawn from train, see `split_off`."""
    together: Sequence[str] = TOGETHER["pair"]
    """Columns by which equal rows are drawn together."""
    parts: Mapping[str, Part] = {}
    """Parts, by name, of loaded splits that have not all rows of their files."""
    equal_sides: bool = False
    """True if the source and the target of a pair are meant to be equal."""
    group_column: str | None = None
    """Column of labels that `load` also returns, as "group"; see `grouped`."""
    documents: str | None = None
    """How documents are told apart, which `load` numbers in a column "document"; None for none."""
    sources: Mapping[str, "Source"] = {}
    """Sources that are trained on in turn, by name, each with its own batches; see `mixed`."""

    @abstractmethod
    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        """Load a split.

        Args:
            split: train, val, test, or another that exists.
            cache_dir: for the memory-mapped copy of `datasets`; None for its default.

        Returns:
            String columns "source" and, if there are targets, "target"; for rows with
                several references, a column "references" with a list of at least one; optionally
                "id" and "group". Optional integer columns, in characters: "head", the length of the
                prefix that begins all windows of a long source; "begin" and "end", of the part that
                a window must contain to be trained on, -1 for none. With `documents` also the
                integer column "document", the same number for all rows of one.

        Raises:
            UserError: if the split does not exist or cannot be read. One split is never substituted
                for another.
        """

    def part(self, rows: "Dataset", split: str, numbers: Any = None) -> "Dataset":
        """Return the rows of a split, the drawn ones unless it has others, and note its part."""
        if numbers is None and not self.held_out:
            return rows
        numbers = split_off(self, rows, split) if numbers is None else numbers
        self.parts = {**self.parts, split: (numbers, len(rows))}
        return rows.select(numbers, keep_in_memory=True)

    def held_out_note(self, split: str) -> str:
        """Return the end of a split's origin: how it is drawn from train; "" for other splits."""
        by = " by document" * bool(self.documents)
        return f" (held out{by})" * (split in self.held_out)

    def grouped(self, column: str) -> Self:
        """Return a copy that also loads labels: rows with equal ones may depend on each other."""
        source = copy(self)
        source.group_column = column
        return source

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        """Yield the pairs (source, target) of a split, as in `load`.

        Pairs are not stored. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            UserError: as `load`.
        """
        rows = self.load(split)
        if "target" not in rows.column_names:
            raise UserError(f"{self.origin(split)} has no target side")
        yield from ((row["source"], row["target"]) for row in rows)

    @property
    def tokenizer(self) -> "Tokenizer | None":
        """Vocabulary that its data was prepared with; None to train one."""
        return None

    def rows(self, tokenizer: "Tokenizer", options: "LoaderOptions") -> "TokenRows[Batch] | None":
        """Return the training pairs if they are stored as ids, else None."""
        return None

    def mixed(self, data: Any) -> "TokenRows[Any]":
        """Return the training rows of all `sources`. Args: data: `Seq2SeqData` of this source."""
        raise NotImplementedError

    def redraw(self, row: Mapping[str, Any], random: Random) -> tuple[str, str]:
        """Return the source and target of a row of `load` for one epoch of training.

        Args:
            random: seeded by the run's seed, the epoch and the row.
        """
        return row["source"], row["target"]

    def files(self, split: str) -> list[Path]:
        """Return the files that a split is read from, empty if unknown."""
        return []

    def check_files(self, splits: Iterable[str]) -> None:
        """Raise UserError if files of splits do not exist; splits that there are not are skipped.

        Raises:
            UserError: as `load`, where no file can be named.
        """
        paths: list[Path] = []
        for split in splits:
            with suppress(MissingSplit):
                paths += self.files(split)
        if absent := [str(path) for path in dict.fromkeys(paths) if not path.exists()]:
            verb, whose = ("does", "its path") if len(absent) == 1 else ("do", "their paths")
            raise UserError(f"{' and '.join(absent)} {verb} not exist; correct {whose}")

    def alignments_of(self, split: str) -> Path | None:
        """Return the file of a split's word alignments, see `read_links`; None without one."""
        return None

    @property
    def source_name(self) -> str:
        """Suffix or column of its sources, which may be a code of their language; "" for none."""
        return ""

    def origin(self, split: str) -> str:
        """Return where a split is read from: its files, or a dataset on the hub."""
        return type(self).__name__

    def notices(self) -> list[str]:
        """Return lines about what `load` repaired or left out."""
        return []


class FileOrHub(Source):
    """Files for each split, or else a dataset on the hub.

    Args:
        files: for each of train, val, test a file, or several, which are concatenated; a name may
            be a pattern such as "news*.jsonl", and end in ".gz". Null for none.
        dataset: a dataset's name on the hub.
        splits: its own names for train, val, test; the defaults are "train", "validation",
            "test".

    Raises:
        UserError: for an unknown split.
    """

    no_test: ClassVar[str] = ""
    """Reason why the test file may be missing, for error messages."""

    def __init__(
        self, files: Files | None, dataset: str | None, splits: Mapping[str, str] | None = None
    ) -> None:
        paths = {split: path for split, path in (files or {}).items() if path is not None}
        for split in (*paths, *(splits or {})):
            if split not in HUB_SPLITS:
                raise UserError(f"split must be one of {', '.join(HUB_SPLITS)}, got {split!r}")
        self.paths: dict[str, list[Path]] = {}
        for split, file_names in paths.items():
            names = [file_names] if isinstance(file_names, str) else file_names
            strings = isinstance(names, Sequence) and all(n and isinstance(n, str) for n in names)
            if not strings or not names:
                raise UserError(f"data.files.{split} must be a file name, got {file_names!r}")
            self.paths[split] = [user_path(name) for name in names]
        self.dataset = dataset
        self.hub_splits = {**HUB_SPLITS, **(splits or {})}

    def hold_out(self, val: float, test: float, together: Sequence[str]) -> None:
        """Draw val and test from train; see `held_out`.

        Raises:
            UserError: if one of them also has a file.
        """
        self.held_out, self.together = held_out_sizes(val, test), together
        for split in self.held_out:
            if split in self.paths:
                keys = f"data.files.{split} and data.{HELD_OUT[split]}"
                raise UserError(f"{keys} are mutually exclusive")
            if "train" in self.paths:
                self.paths[split] = self.paths["train"]
            self.hub_splits[split] = self.hub_splits["train"]

    def origin(self, split: str) -> str:
        """Return where a split is read from.

        Raises:
            UserError: if there is no such split, or its test file is missing.
        """
        splits = self.paths or self.hub_splits
        if split not in splits:
            hint = f"; add data.files.{split}=FILE" * (split in HUB_SPLITS)
            raise MissingSplit(f"the data has no {split} split, only {', '.join(splits)}{hint}")
        held_out = self.held_out_note(split)
        if self.dataset is not None:
            return f"{self.dataset} ({self.hub_splits[split]}){held_out}"
        path, *more = self.paths_of(split)
        if split == "test" and self.no_test and not is_file(path):
            raise UserError(f"the test split requires {path}, which does not exist; {self.no_test}")
        return name_files([path, *more]) + held_out

    def files(self, split: str) -> list[Path]:
        return self.paths_of(split) if split in self.paths else []

    def paths_of(self, split: str) -> list[Path]:
        """Return a split's files in reading order, with patterns expanded."""
        return [path for pattern in self.paths[split] for path in matching(pattern)]


def split_off(source: Source, rows: "Dataset", split: str) -> npt.NDArray[np.int64]:
    """Return the numbers of a split's rows, where others are drawn from those of train.

    Equal rows stay together, so that no held-out one is trained on: a drawn split has at most as
    many rows as its size (below 1, its share), and fewer only if no other row is rare enough.

    Raises:
        UserError: if a drawn split, or train, would have no rows.
    """
    remaining = np.random.default_rng(0).permutation(len(rows))
    pairs = pair_numbers(rows, source.together)
    for name, size in source.held_out.items():
        count = round(size * len(rows)) if size < 1 else int(size)
        selected = _rows_of_pairs(pairs[remaining], count)
        if not selected.any() or selected.all():
            empty = "train" if selected.any() else name
            equal = f", of which those of one {' and '.join(source.together)} stay together"
            equal *= empty == name and count > 0
            raise UserError(
                f"data.{HELD_OUT[name]}={size:g} leaves no rows for {empty}: "
                f"{source.origin('train')} has {len(rows):,}{equal}"
            )
        if name == split:
            remaining = remaining[selected]
            break
        remaining = remaining[~selected]
    return np.sort(remaining)


def pair_numbers(rows: "Dataset", together: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each row, the same for those with equal columns."""
    numbers = np.zeros(len(rows), np.int64)
    if not len(rows):
        return numbers
    for name in [column for column in together if column in rows.column_names]:
        chunks = rows.data.column(name).dictionary_encode().chunks
        texts = np.concatenate([np.asarray(chunk.indices, np.int64) for chunk in chunks])
        numbers = np.unique(numbers * len(rows) + texts, return_inverse=True)[1]
    return numbers


def _rows_of_pairs(pairs: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """Mark at most `count` rows: all those of the first pairs that fit."""
    _, first, inverse, sizes = np.unique(
        pairs, return_index=True, return_inverse=True, return_counts=True
    )
    chosen = np.zeros(len(sizes), bool)
    for pair in np.argsort(first).tolist():
        if count < 1:
            break
        if sizes[pair] <= count:
            chosen[pair] = True
            count -= sizes[pair]
    return chosen[inverse]


def chosen_lines(lines: int, rows: int, part: Part | None, name: object) -> Sequence[int]:
    """Return the numbers of a split's lines among those of a file with one for each row.

    Raises:
        UserError: unless the file has a line for each row of the split, or for all in `part`.
    """
    if part is not None and lines == part[1]:
        return part[0].tolist()
    if lines != rows:
        total = f", or {part[1]:,} with those of other splits" if part else ""
        must = f"{name} must have one line per pair of the split"
        raise UserError(f"{must}, got {lines:,} lines for {rows:,} pairs{total}")
    return range(rows)


def held_out_sizes(hold_out: float, hold_out_test: float) -> dict[str, float]:
    """Return the sizes of the splits that are drawn from train; see `split_off`."""
    sizes = {"val": hold_out, "test": hold_out_test}
    return {split: size for split, size in sizes.items() if size}


def name_files(paths: Sequence[Path]) -> str:
    """Name files in a message: all of them, or the first and the number of others."""
    first, *more = map(str, paths)
    return (
        f"{first} and {len(more):,} more files" if len(more) > 1 else " and ".join([first, *more])
    )


def matching(path: Path) -> list[Path]:
    """Return the sorted files that match a pattern such as "news*.jsonl", or a plain name itself.

    Raises:
        UserError: if there is none.
    """
    if not glob.has_magic(str(path)) or is_file(path):
        return [path]
    # not `Path.glob`, which accepts neither absolute paths nor "**.jsonl"
    files = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
    if not files:
        raise UserError(f"no file matches {path}")
    return files


@dataclass(frozen=True)
class Texts:
    """Raw rows of a split, with nothing left out."""

    sources: list[str]
    targets: list[str]
    """Empty if the split has only sources."""
    references: list[list[str]]
    """One or more for each source, by default the target; empty without targets."""
    ids: list[str] | None
    """Id of each row; None without ids."""
    groups: list[str] | None = field(default=None, kw_only=True)
    """Label of each row's group; None if all rows are independent."""
    documents: list[int] | None = field(default=None, kw_only=True)
    """Number of each row's document; None if the data does not tell them apart."""

    @classmethod
    def of(cls, table: "Dataset") -> "Texts":
        """Read the columns of `Source.load`, if present."""
        names = table.column_names
        targets = list(table["target"]) if "target" in names else []
        references = [[text] for text in targets]
        if "references" in names:
            references = [list(row) for row in table["references"]]
        ids = [str(name) for name in table["id"]] if "id" in names else None
        sources = list(table["source"])
        if "head" in names:
            sources = list(map(Headed, sources, table["head"]))
        groups = list(table["group"]) if "group" in names else None
        documents = list(table["document"]) if "document" in names else None
        return cls(sources, targets, references, ids, groups=groups, documents=documents)

    def first(self, count: int | None) -> Self:
        """Return the first `count` rows; None for all."""
        return self.at(range(len(self.sources))[:count])

    def at(self, rows: Sequence[int]) -> Self:
        """Return the rows with these numbers."""
        columns = {
            name: column and [column[row] for row in rows] for name, column in vars(self).items()
        }
        return replace(self, **columns)

    def score(self, scorer: Any, outputs: Sequence[str]) -> Any:
        """Return a scorer's scores of an output for each row."""
        return scorer.score(outputs, self.references, self.sources)
