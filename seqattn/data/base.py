"""What a source of data is, and its rows as plain lists."""

import glob
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from seqattn.data.reading import Headed
from seqattn.errors import UserError
from seqattn.storage import is_file, user_path

if TYPE_CHECKING:
    from datasets import Dataset

HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""The splits, each with its name on the hub."""
Files = Mapping[str, str | Sequence[str] | None]
"""A file for each split, or several, or patterns of names."""


class Source(ABC):
    """Text in splits: train, val, test.

    A source of your own is a subclass in your own package and a `conf/data/NAME.yaml` of yours,
    which names it by `_target_` and gives its constructor's arguments; then `data=NAME` works:

        class Proverbs(Source):
            yields = "pairs"

            def load(self, split, cache_dir=None):
                return datasets.Dataset.from_dict({"source": [...], "target": [...]})
    """

    yields: ClassVar[Literal["pairs", "questions"]] = "pairs"
    """Pairs of texts, or questions on contexts: so a task knows whether it can use the source."""

    @abstractmethod
    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        """Reads a split.

        Args:
            split: train, val, test, or another that is there.
            cache_dir: where `datasets` keeps its memory-mapped copy; None for its own place.

        Returns:
            Of pairs, string columns "source" and, where there are targets, "target"; where rows
            have several references, a column "references" with a list of them, one at least;
            perhaps an "id". Numbers of characters may stand in "head", of what begins all windows
            of a long source, and "begin" and "end", of what a window must hold to be trained on,
            -1 for nothing. Of questions, string columns "id", "question" and "context", and
            "answers" and "starts": a list of the right answers and one of the characters of the
            context where they begin, -1 for one that stands nowhere in it, both empty for a
            question without an answer.

        Raises:
            UserError: the split is not there or cannot be read. A split is never another one
                under its name.
        """

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        """The pairs of a split one after the other, source and target, as `load` has them.

        Nothing is kept of those that were read, and bytes that are no UTF-8 are U+FFFD.

        Raises:
            UserError: as `load`.
        """
        rows = self.load(split)
        if "target" not in rows.column_names:
            raise UserError(f"{self.origin(split)} has no target side")
        yield from ((row["source"], row["target"]) for row in rows)

    def files(self, split: str) -> list[Path]:
        """The files that a split is read from; none where they are not known."""
        return []

    def alignments_of(self, split: str) -> Path | None:
        """The file of a split's word alignments, as `read_links` reads it; None for none."""
        return None

    def origin(self, split: str) -> str:
        """What a split is read from: its files, or a dataset of the hub."""
        return type(self).__name__

    def report(self) -> list[str]:
        """Lines on what `load` had to mend or leave out."""
        return []


class FileOrHub(Source):
    """Files for each split, or else a dataset on the hub.

    Args:
        files: for each of train, val, test a file, or several, which are read one after the other;
            a name may be a pattern such as "news*.jsonl", and end in ".gz". Null for none.
        dataset: a dataset's name on the hub.
        splits: its own names for train, val, test; those left out keep "train", "validation",
            "test".

    Raises:
        UserError: an unknown split.
    """

    no_test: ClassVar[str] = ""
    """Why the test file may be absent."""

    def __init__(
        self, files: Files | None, dataset: str | None, splits: Mapping[str, str] | None = None
    ) -> None:
        given = {split: path for split, path in (files or {}).items() if path is not None}
        for split in (*given, *(splits or {})):
            if split not in HUB_SPLITS:
                raise UserError(f"split must be one of {', '.join(HUB_SPLITS)}, got {split!r}")
        self.paths: dict[str, list[Path]] = {}
        for split, named in given.items():
            names = [named] if isinstance(named, str) else named
            strings = isinstance(names, Sequence) and all(n and isinstance(n, str) for n in names)
            if not strings or not names:
                raise UserError(f"data.files.{split} must be a file's name, got {named!r}")
            self.paths[split] = [user_path(name) for name in names]
        self.dataset = dataset
        self.hub_splits = {**HUB_SPLITS, **(splits or {})}

    def origin(self, split: str) -> str:
        """What a split is read from.

        Raises:
            UserError: there is no such split, or its file for testing is not there.
        """
        known = self.paths or self.hub_splits
        if split not in known:
            raise UserError(f"the {split} split must have a file, got {', '.join(known)}")
        if self.dataset is not None:
            return f"{self.dataset} ({self.hub_splits[split]})"
        path, *more = self.found(split)
        if split == "test" and self.no_test and not is_file(path):
            raise UserError(f"the test split needs {path}, which does not exist; {self.no_test}")
        return several([path, *more])

    def files(self, split: str) -> list[Path]:
        return self.found(split) if split in self.paths else []

    def found(self, split: str) -> list[Path]:
        """A split's files, patterns resolved, in the order in which they are read."""
        return [path for given in self.paths[split] for path in matching(given)]


def several(paths: Sequence[Path]) -> str:
    """Names files in a message: all of them, or the first and how many more."""
    first, *more = map(str, paths)
    return (
        f"{first} and {len(more):,} more files" if len(more) > 1 else " and ".join([first, *more])
    )


def matching(path: Path) -> list[Path]:
    """The files that a pattern such as "news*.jsonl" names, sorted; of a plain name that alone.

    Raises:
        UserError: there is none.
    """
    if not glob.has_magic(str(path)) or is_file(path):
        return [path]
    # not `Path.glob`, which takes neither whole paths nor "**.jsonl"
    found = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
    if not found:
        raise UserError(f"{path} must name a file at least, there is none")
    return found


class Rows(Protocol):
    """Rows of a split as they came, of any kind."""

    @property
    def sources(self) -> Sequence[str]:
        """What is read: texts, or questions."""

    @property
    def contexts(self) -> Sequence[str | None]:
        """What each question is about; None for a text."""

    @property
    def references(self) -> Sequence[Sequence[str]]:
        """The right outputs of each row."""

    def first(self, count: int | None) -> Self:
        """Return the first `count` rows; None for all."""

    def score(self, scorer: Any, outputs: Sequence[str]) -> Any:
        """Return a scorer's scores of an output for each row."""


class Texts(NamedTuple):
    """`Rows` of pairs as they came, nothing left out."""

    sources: list[str]
    targets: list[str]
    """Empty where the split has only sources."""
    references: list[list[str]]
    """One or more for each source, the target alone where there are no others; empty without."""
    ids: list[str] | None
    """What names each row; None where nothing does."""

    @classmethod
    def of(cls, table: "Dataset") -> "Texts":
        """Reads the columns "source", "head", "target", "references", "id" where they are there."""
        names = table.column_names
        targets = list(table["target"]) if "target" in names else []
        references = [[text] for text in targets]
        if "references" in names:
            references = [list(row) for row in table["references"]]
        ids = [str(name) for name in table["id"]] if "id" in names else None
        sources = list(table["source"])
        if "head" in names:
            sources = list(map(Headed, sources, table["head"]))
        return cls(sources, targets, references, ids)

    @property
    def contexts(self) -> list[None]:
        """None for each source."""
        return [None] * len(self.sources)

    def first(self, count: int | None) -> "Texts":
        return self.at(range(len(self.sources))[:count])

    def at(self, rows: Sequence[int]) -> "Texts":
        """The rows of these numbers."""
        columns: Any = (column and [column[row] for row in rows] for column in self)
        return Texts(*columns)

    def score(self, scorer: Any, outputs: Sequence[str]) -> Any:
        return scorer.score(outputs, self.references, self.sources)
