"""What a source of data is, and its rows as plain lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from seqattn.errors import UserError
from seqattn.storage import is_file

if TYPE_CHECKING:
    from datasets import Dataset

HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""The splits, each with its name on the hub."""


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
    def load(self, split: str, cache_dir: Path | None = None) -> Dataset:
        """Reads a split.

        Args:
            split: train, val, test, or another that is there.
            cache_dir: where `datasets` keeps its memory-mapped copy; None for its own place.

        Returns:
            Of pairs, string columns "source" and, where there are targets, "target"; where rows
            have several references, a column "references" with a list of them, one at least;
            perhaps an "id". Of questions, string columns "id", "question" and "context", and
            "answers" and "starts": a list of the right answers and one of the characters of the
            context where they begin, both empty for a question without an answer.

        Raises:
            UserError: the split is not there or cannot be read. A split is never another one
                under its name.
        """

    def origin(self, split: str) -> str:
        """What a split is read from: its files, or a dataset of the hub."""
        return type(self).__name__

    def report(self) -> list[str]:
        """Lines on what `load` had to mend or leave out."""
        return []


class FileOrHub(Source):
    """A file for each split, or else a dataset on the hub.

    Args:
        files: a file for each of train, val, test; null for none.
        dataset: a dataset's name on the hub.
        splits: its own names for train, val, test; those left out keep "train", "validation",
            "test".

    Raises:
        UserError: an unknown split.
    """

    no_test: ClassVar[str] = ""
    """Why the test file may be absent."""

    def __init__(
        self,
        files: Mapping[str, str | None] | None,
        dataset: str | None,
        splits: Mapping[str, str] | None = None,
    ) -> None:
        given = {split: path for split, path in (files or {}).items() if path is not None}
        for split in (*given, *(splits or {})):
            if split not in HUB_SPLITS:
                raise UserError(f"split must be one of {', '.join(HUB_SPLITS)}, got {split!r}")
        for split, path in given.items():
            if not isinstance(path, str) or not path:
                raise UserError(f"data.files.{split} must be a file's name, got {path!r}")
        self.paths = {split: Path(path).expanduser() for split, path in given.items()}
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
        path = self.paths[split]
        if split == "test" and self.no_test and not is_file(path):
            raise UserError(f"the test split needs {path}, which does not exist; {self.no_test}")
        return str(path)


class Texts(NamedTuple):
    """Rows of pairs as they came, nothing left out."""

    sources: list[str]
    targets: list[str]
    """Empty where the split has only sources."""
    references: list[list[str]]
    """One or more for each source, the target alone where there are no others; empty without."""
    ids: list[str] | None
    """What names each row; None where nothing does."""

    @classmethod
    def of(cls, table: Dataset) -> Texts:
        """Reads the columns "source", "target", "references", "id", as far as they are there."""
        names = table.column_names
        targets = list(table["target"]) if "target" in names else []
        references = [[text] for text in targets]
        if "references" in names:
            references = [list(row) for row in table["references"]]
        ids = [str(name) for name in table["id"]] if "id" in names else None
        return cls(list(table["source"]), targets, references, ids)
