"""Plain text as a source of pairs: a noised text and what restores it."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from seqattn.checking import Count, NotNegative
from seqattn.data.arrow_tables import TEXT, table_of
from seqattn.data.base import FileOrHub, Files
from seqattn.data.table import check_columns
from seqattn.data.table_files import READERS, read_file
from seqattn.data.text_files import plain_lines
from seqattn.errors import UserError
from seqattn.extras.denoising.noise import (
    Kind,
    Noise,
    NoiseShare,
    Span,
    join_words,
    sentences_of,
)
from seqattn.storage import digest_of, kind_of


class Denoising(FileOrHub):
    """Pairs of a noised text and its target; the noise of training pairs is new in each epoch.

    Files are lines of text, or tables such as jsonl, of which a column is read.

    Args:
        files: as `FileOrHub`.
        column: column of the texts of tables.
        noise, share, span, permute: as `Noise`.
        max_words: longer texts are cut into texts of this many words, as `Noise` counts them.
        hold_out, hold_out_test: as `Table`, in texts.

    Raises:
        UserError: without a training file.
    """

    redraws: ClassVar[bool] = True

    def __init__(
        self,
        files: Files | None = None,
        column: str = "text",
        noise: Kind = "infilling",
        share: NoiseShare | None = None,
        span: Span = 3.0,
        permute: bool = False,
        max_words: Count = 128,
        hold_out: NotNegative = 0,
        hold_out_test: NotNegative = 0,
    ) -> None:
        super().__init__(files, None)
        if "train" not in self.paths:
            raise UserError("missing required key: data.files.train (add data.files.train=FILE)")
        self.noise = Noise(noise, share, span, permute)
        self.column, self.max_words = column, max_words
        self.hold_out(hold_out, hold_out_test, ["text"])

    def load(self, split: str, cache_dir: Path | None = None) -> Any:
        """Load a split, with a column "text" besides those of pairs, whose noise is fixed."""
        self.origin(split)
        paths = self.paths_of(split)
        digests = [*map(digest_of, paths)]
        content = f"denoising-3 {self.noise} {self.max_words} {self.column} {digests}"
        columns = dict.fromkeys(("source", "target", "text"), TEXT)
        table = table_of(self._rows(paths, cache_dir), columns, content, cache_dir)
        return self.part(table, split)

    def redraw(self, row: Mapping[str, Any], random: Random) -> tuple[str, str]:
        return self.noise(row["text"], random)

    def _rows(self, paths: list[Path], cache_dir: Path | None) -> Iterator[dict[str, str]]:
        number = 0
        for path in paths:
            for text in self._texts(path, cache_dir):
                words = [*chain(*sentences_of(text))] or [text.strip()]
                for start in range(0, len(words), self.max_words):
                    part = join_words(words[start : start + self.max_words])
                    source, target = self.noise(part, Random(f"fixed {number}"))
                    yield {"source": source, "target": target, "text": part}
                    number += 1

    def _texts(self, path: Path, cache_dir: Path | None) -> Iterator[str]:
        if kind_of(path) not in READERS:
            yield from plain_lines(path)
            return
        table = read_file(path, cache_dir).flatten()
        if self.column not in table.column_names:
            names = ", ".join(table.column_names)
            raise UserError(f"{path} has no column {self.column!r}, only {names}; set data.column")
        check_columns(table, {"text": [self.column]}, str(path))
        yield from (text or "" for text in table[self.column])
