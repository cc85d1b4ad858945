"""Words, their features and targets, in the columns of tab-separated files."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Self

from seqattn.checking import BadValue, Count, NotNegative, shown
from seqattn.data.base import TOGETHER, FileOrHub, Files
from seqattn.data.foreign_models import MARKS
from seqattn.data.text_files import read_lines
from seqattn.errors import UserError
from seqattn.inputs import check_there

_FEATURE = re.compile(r"[^\s▁▅]{1,1000}")


class Words(FileOrHub):
    """Pairs of a word, with its features, and a target, from tab-separated files without header.

    Args:
        files: as `FileOrHub`, with any suffix; blank lines are skipped.
        word_column, target_column: numbers of columns, from 1.
        features_column: likewise; None for words alone.
        feature_mark: character between features.
        hold_out, hold_out_test: as `Table`, in rows.
        hold_out_by: what is drawn together: all rows of a word, or equal rows alone.

    Attributes:
        mark: character before each feature of a source; None for words alone.

    Raises:
        UserError: for a column that is used twice, or a split that is a file and held out.
    """

    def __init__(
        self,
        files: Files | None = None,
        word_column: Count = 1,
        target_column: Count = 2,
        features_column: Count | None = None,
        feature_mark: str = ";",
        hold_out: NotNegative = 0,
        hold_out_test: NotNegative = 0,
        hold_out_by: Literal["word", "pair"] = "word",
    ) -> None:
        super().__init__(files, None)
        columns = {"word": word_column, "target": target_column, "features": features_column}
        self.columns = {name: n for name, n in columns.items() if n is not None}
        for first, second in combinations(self.columns, 2):
            if self.columns[first] == self.columns[second]:
                reason = f"must differ from data.{first}_column, got {self.columns[second]}"
                raise BadValue(f"{second}_column", reason)
        if not re.fullmatch(r"[^\s▁▅]", feature_mark):
            reason = f"must be one character, and not a space, ▁ or ▅, got {shown(feature_mark)}"
            raise BadValue("feature_mark", reason)
        self.mark = feature_mark if features_column else None
        self.hold_out(hold_out, hold_out_test, TOGETHER.get(hold_out_by, (hold_out_by,)))
        self._notes: dict[str, list[str]] = {}

    def load(self, split: str, cache_dir: Path | None = None) -> Any:
        from datasets import Dataset  # takes seconds to import, and generation needs none

        if not self.paths:
            raise UserError("missing required key: data.files.train (add data.files.train=FILE)")
        self.origin(split)
        rows = [row for path in self.paths_of(split) for row in self._rows(path, split)]
        sources, targets, labels = ([row[side] for row in rows] for side in range(3))
        if split == "train" and self.mark:
            counts = Counter(piece for text in sources for piece in {*pieces(text, self.mark)})
            single = sorted(piece[1:] for piece, count in counts.items() if count == 1)
            self._notes["features occur in one training row alone"] = single
        groups = {"group": labels} if self.group_column else {}
        table = {"source": sources, "target": targets, "word": self.words_of(sources), **groups}
        return self.part(Dataset.from_dict(table), split).remove_columns("word")

    def grouped(self, column: str) -> Self:
        """Return a copy that also loads labels: the word (`lemma`), or a column by its number."""
        number = str(self.columns["word"]) if column == "lemma" else column
        if not number.isdecimal() or int(number) < 1:
            reason = f"must be lemma, source, prefix:N or the number of a column, got {column}"
            raise BadValue("group", reason)
        return super().grouped(number)

    def _rows(self, path: Path, split: str) -> Iterator[tuple[str, str, str]]:
        """Yield sources, targets and labels; one is empty if a row lacks its word or target."""
        check_there(path, "a text file")
        empty = self._notes[f"rows of {path} have no word or no target"] = []
        bare = self._notes[f"rows of {path} have no features"] = []
        label = int(self.group_column or 1)
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                fields, where = line.split("\t"), f"{path} line {number:,}"
                source = self.source_of(fields, where, complete=True)
                for feature in pieces(source, self.mark) if split == "train" and self.mark else ():
                    if not _FEATURE.fullmatch(feature) or feature in MARKS:
                        reason = "must have no spaces, ▁ or ▅, and fewer than 1,000 characters"
                        raise UserError(f"{where}: the feature {shown(feature[1:])} {reason}")
                target = fields[self.columns["target"] - 1].strip()
                if not source or not target:
                    empty.append(f"line {number:,}")
                elif self.mark and self.mark not in source:
                    bare.append(f"line {number:,}")
                if label > len(fields):
                    raise UserError(f"{where} has {len(fields)} columns, but group is {label}")
                yield source, target, fields[label - 1].strip()

    def source_of(self, fields: Sequence[str], where: str, complete: bool = False) -> str:
        """Return the source of a row: its word, and its features each after the mark.

        Args:
            fields: the columns of the row.
            where: the row, for messages.
            complete: False for a row that may lack the target; fewer columns than the data's are
                then the word alone, or the word and its features.

        Raises:
            UserError: if the row lacks a column.
        """
        columns = {name: n for name, n in self.columns.items() if complete or name != "target"}
        if not complete and len(fields) < len(self.columns):
            columns = dict(zip(("word", "features"), range(1, len(fields) + 1)))
        for name, column in columns.items():
            if column > len(fields):
                raise UserError(
                    f"{where} has {len(fields)} columns, but data.{name}_column is {column}; tabs "
                    "separate columns, which are counted from 1"
                )
        word, *features = (fields[columns[n] - 1].strip() for n in columns if n != "target")
        return self.tidy(f"{word}{self.mark}{features[0]}") if word and any(features) else word

    def tidy(self, source: str) -> str:
        """Return a source without spaces around its features."""
        word, *features = source.split(self.mark) if self.mark else [source]
        return (self.mark or "").join([word, *map(str.strip, features)])

    def words_of(self, sources: Sequence[str]) -> list[str]:
        """Return the word of each source, without its features."""
        return [text.partition(self.mark)[0] if self.mark else text for text in sources]

    def notices(self) -> list[str]:
        """Return the number of rows without word, target or features, and of rare features."""
        notes = self._notes.items()
        return [f"{len(some):,} {what}, such as {some[0]}" for what, some in notes if some]


def pieces(source: str, mark: str) -> list[str]:
    """Return the features of a source, each with the mark before it."""
    return [f"{mark}{feature}" for feature in source.split(mark)[1:] if feature]
