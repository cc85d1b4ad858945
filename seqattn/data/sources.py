"""Line-aligned text files: a source of sentence pairs."""

import glob
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from seqattn.checking import NotNegative
from seqattn.data.base import TOGETHER, MissingSplit, Source, held_out_sizes, name_files
from seqattn.data.text_files import aligned_lines, read_lines, scan_text
from seqattn.errors import UserError
from seqattn.installation import shipped
from seqattn.roles import Role
from seqattn.storage import file_faults, is_file, user_path

if TYPE_CHECKING:
    from datasets import Dataset


class ParallelText(Source):
    """Two line-aligned text files for each split, `ROOT/NAME.SUFFIX`, one sentence per line.

    If one does not exist, `ROOT/NAME.SUFFIX.gz` is read.

    Every line is kept, empty ones included: training leaves out pairs with an empty side and
    reports their number, and evaluation writes an empty line for an empty source.

    Args:
        root: the directory.
        source_suffix: suffix of the source files, such as "en".
        target_suffix: suffix of the target files; None if there are only sources.
        train, val, test: file names without the suffix; a list, or a pattern such as "news*",
            for several files, which are concatenated.
        alignments: a file with word alignments of the split to be explained, see
            `seqattn.data.word_links.read_links`; None for none.
        hold_out, hold_out_test: number of pairs, or share if below 1, that are drawn from train to
            be val and test instead of their files, always the same ones; 0 for none.
        hold_out_by: what is drawn together: all pairs of a source, or equal pairs alone.
        documents: "lines" if an empty line on both sides ends a document, and so does the end of a
            file; documents are then held out whole. None for single pairs.
    """

    def __init__(
        self,
        root: str,
        source_suffix: str,
        target_suffix: str | None,
        train: str | list[str] = "train",
        val: str | list[str] = "val",
        test: Annotated[str | list[str], Role.SCORE] = "test",
        alignments: Annotated[str | None, Role.NOTE] = None,
        hold_out: NotNegative = 0,
        hold_out_test: NotNegative = 0,
        hold_out_by: Literal["source", "pair"] = "source",
        documents: Literal["lines"] | None = None,
    ) -> None:
        self.alignments, self.documents = alignments, documents
        self.root = user_path(root)
        self.suffixes = {"source": source_suffix}
        if target_suffix is not None:
            self.suffixes["target"] = target_suffix
        self.names: dict[str, str | list[str]] = {"train": train, "val": val, "test": test}
        self.held_out, self.together = (
            held_out_sizes(hold_out, hold_out_test),
            TOGETHER["document" if documents else hold_out_by],
        )
        self.names |= dict.fromkeys(self.held_out, train)

    @property
    def source_name(self) -> str:
        return self.suffixes["source"]

    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        files, content = self._files(split), [*self.suffixes]
        for paths in files:
            lines, digests = zip(*map(scan_text, paths), strict=True)
            if len(set(lines)) > 1:
                counts = ", ".join(f"{path} has {n:,}" for path, n in zip(paths, lines))
                raise UserError(f"source and target must have the same number of lines: {counts}")
            if lines[0] == 0:
                raise UserError(f"the {split} split has no text: {paths[0]} is empty")
            content += digests  # cached by content, not by path: a changed file is read again
        # `datasets` takes a second to import
        from seqattn.data.arrow_tables import NUMBER, TEXT, table_of

        columns = dict.fromkeys(self.suffixes, TEXT)
        if self.documents:
            columns["document"] = NUMBER
            content.append("documents")
        table = table_of(self._rows(files), columns, " ".join(content), cache_dir)
        return self.part(table, split)

    def _rows(self, files: list[list[Path]]) -> Iterator[dict[str, Any]]:
        document = 0
        for paths in files:
            for number, texts in enumerate(zip(*map(read_lines, paths), strict=True), 1):
                row: dict[str, Any] = dict(zip(self.suffixes, texts, strict=True))
                if self.documents:
                    row["document"] = document
                    document += _ends_document(texts, paths, number)
                yield row
            document += 1

    def grouped(self, column: str) -> Self:
        """Return a copy that also reads labels, from the lines of ROOT/NAME.COLUMN."""
        source = super().grouped(column)
        source.suffixes = {**self.suffixes, "group": column}
        return source

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        if "target" not in self.suffixes:
            raise UserError("the data has no target side; set data.target_suffix")
        if self.held_out:
            yield from super().stream(split)
            return
        for source, target in self._files(split):
            yield from aligned_lines(source, target)

    def files(self, split: str) -> list[Path]:
        return [path for paths in self._files(split) for path in paths]

    def alignments_of(self, split: str) -> Path | None:
        return None if self.alignments is None else user_path(self.alignments)

    def origin(self, split: str) -> str:
        return name_files(self.files(split)) + self.held_out_note(split)

    def _files(self, split: str) -> list[list[Path]]:
        """Return a split's existing files: for each name those of both sides."""
        if split not in self.names:
            raise UserError(f"split must be one of {', '.join(self.names)}, got {split!r}")
        with file_faults("read", self.root):
            if not self.root.is_dir():
                raise UserError(f"data.root={self.root} is not a directory")
            there = sorted(path.name for path in self.root.iterdir() if path.is_file())
        file_names = self.names[split]
        if not file_names:
            raise UserError(
                f"data.{split} must be a file name without its suffix, got {file_names!r}"
            )
        return [
            [self._file(split, f"{name}.{suffix}", there) for suffix in self.suffixes.values()]
            for pattern in ([file_names] if isinstance(file_names, str) else file_names)
            for name in self._matching(pattern)
        ]

    def _matching(self, pattern: str) -> list[str]:
        """Return the names without suffix that match a pattern, from the source files."""
        end, names = f".{self.suffixes['source']}", {pattern}
        ends = end, f"{end}.gz"
        if glob.has_magic(pattern) and not any(is_file(self.root / f"{pattern}{e}") for e in ends):
            matches = (glob.glob(pattern + e, root_dir=self.root, recursive=True) for e in ends)  # noqa: PTH207
            names = {name.removesuffix(".gz") for name in chain.from_iterable(matches)}
        if not names:
            raise UserError(f"no file in {self.root} matches {pattern}{end}")
        return [name.removesuffix(end) for name in sorted(names)]

    def _file(self, split: str, name: str, there: list[str]) -> Path:
        for path in (self.root / name, self.root / f"{name}.gz"):
            if is_file(path):
                return path
        more = f" and {len(there) - 12} more" if len(there) > 12 else ""
        raise MissingSplit(
            f"the {split} split requires {name} in {self.root}, "
            f"which contains {', '.join(there[:12]) or 'no files'}{more}"
        )


def _ends_document(texts: Sequence[str], paths: Sequence[Path], number: int) -> bool:
    """Return True if both sides of a line are empty; raise UserError if one is."""
    empty = [not text.strip() for text in texts[:2]]  # a third is a label
    if any(empty) and not all(empty):
        raise UserError(
            f"line {number:,} of {paths[empty.index(True)]} is empty, but not of "
            f"{paths[empty.index(False)]}; with data.documents=lines, a document ends with a line "
            "that is empty on both sides"
        )
    return all(empty)


class Multi30k(ParallelText):
    """Multi30k (Elliott 2016, arXiv 1605.00459): image captions.

    Args:
        root: a directory with train.en train.de val.* test_2016_flickr.*, and optionally other
            test sets; None to load `bentrevett/multi30k` from the hub (English and German).
        source: suffix (on the hub, column) of the source language.
        target: suffix of the target language.
        test: name of the test set, such as test_2017_flickr or test_2017_mscoco.
        alignments: as `ParallelText`.

    Raises:
        UserError: for a test set that the hub does not have, without a root.
    """

    def __init__(
        self,
        root: str | None = None,
        source: str = "en",
        target: str = "de",
        test: Annotated[str | list[str], Role.SCORE] = "test_2016_flickr",
        alignments: Annotated[str | None, Role.NOTE] = None,
    ) -> None:
        super().__init__(root or "", source, target, test=test, alignments=alignments)
        self.hub = None
        if root is None:
            from seqattn.data.table import Table

            if test != "test_2016_flickr":
                raise UserError(f"data.test={test} is not on the hub; set data.root=DIR")
            self.hub = Table(
                dataset="bentrevett/multi30k", source_column=source, target_column=target
            )

    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        if self.hub is None:
            return super().load(split, cache_dir)
        try:
            return self.hub.load(split, cache_dir)
        except UserError as error:
            raise UserError(
                f"{error}; set data.root to a directory with train.en, train.de, ..."
            ) from error

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        return super().stream(split) if self.hub is None else self.hub.stream(split)

    def files(self, split: str) -> list[Path]:
        return super().files(split) if self.hub is None else []

    def origin(self, split: str) -> str:
        return super().origin(split) if self.hub is None else self.hub.origin(split)


class DemoTranslation(ParallelText):
    """The bundled English-German sentences, written by a grammar: see the head of its files.

    Args:
        alignments: as `ParallelText`; None for the grammar's own, of val and test.
    """

    def __init__(self, alignments: Annotated[str | None, Role.NOTE] = None) -> None:
        root = str(shipped("data") / "demo_translation")
        super().__init__(root, "en", "de", alignments=alignments)

    def alignments_of(self, split: str) -> Path | None:
        bundled = self.root / f"{split}.align"
        return super().alignments_of(split) or (bundled if is_file(bundled) else None)
