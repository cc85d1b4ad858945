"""Where pairs of texts come from: line-aligned files, tables, the Hugging Face hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import datasets

from seqattn.data.quiet import quiet_datasets
from seqattn.data.table import Table
from seqattn.data.text_files import files_in, read_lines, scan_text
from seqattn.errors import UserError
from seqattn.places import shipped

__all__ = ["DemoTranslation", "Multi30k", "ParallelText", "Source", "Table", "references_of"]

BUNDLED = shipped("data")


class Source(Protocol):
    """Anything that gives text in splits."""

    def splits(self) -> list[str]:
        """Names the splits that are there, of train, val, test."""

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split into string columns "source" and, where there are targets, "target".

        Where rows have several references, a column "references" holds a list of them, one at
        least; the target is what training learns.

        Args:
            split: train, val or test.
            cache_dir: where `datasets` keeps its memory-mapped copy; None for its own place.

        Raises:
            UserError: the split is not there or cannot be read.
        """


def references_of(texts: datasets.Dataset) -> list[list[str]]:
    """Gives each row's references to score against: its "references", or else its "target".

    Args:
        texts: what `Source.load` gave.

    Raises:
        UserError: the rows have neither.
    """
    if "references" in texts.column_names:
        return [list(row) for row in texts["references"]]
    if "target" not in texts.column_names:
        raise UserError("there must be references to score against, the data has only sources")
    return [[text] for text in texts["target"]]


class ParallelText:
    """Two line-aligned text files for each split, `ROOT/NAME.SUFFIX`, one sentence a line.

    Every line is kept, an empty one too: training leaves pairs with an empty side out and says
    how many, and evaluation answers an empty source with an empty line.

    Args:
        root: the directory.
        source_suffix: ends the names of the source files, such as "en".
        target_suffix: ends those of the target files; None where there are only sources.
        train: the training files' name without the suffix.
        val: the validation files' name.
        test: the test files' name.
    """

    def __init__(
        self,
        root: str,
        source_suffix: str,
        target_suffix: str | None,
        train: str = "train",
        val: str = "val",
        test: str = "test",
    ) -> None:
        self.root = Path(root).expanduser()
        self.suffixes = {"source": source_suffix}
        if target_suffix is not None:
            self.suffixes["target"] = target_suffix
        self.names = {"train": train, "val": val, "test": test}

    def splits(self) -> list[str]:
        """Names the splits whose files are all there."""
        there = (all(p.is_file() for p in self._paths(s).values()) for s in self.names)
        return [split for split, found in zip(self.names, there, strict=True) if found]

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split; see `Source.load`.

        Raises:
            UserError: an unknown split; a file that is missing, empty or not UTF-8; files with
                different numbers of lines.
        """
        if split not in self.names:
            raise UserError(f"split must be one of {', '.join(self.names)}, got {split!r}")
        if not self.root.is_dir():
            raise UserError(f"the data's root must be a directory, {self.root} is not")
        paths = self._paths(split)
        for path in paths.values():
            if not path.is_file():
                raise UserError(
                    f"the {split} split needs {path.name} in {self.root}, "
                    f"which holds {files_in(self.root)}"
                )
        scans = {side: scan_text(path) for side, path in paths.items()}
        counts = {scan.lines for scan in scans.values()}
        if len(counts) > 1:
            said = " and ".join(f"{s.path} has {s.lines:,}" for s in scans.values())
            raise UserError(f"both sides must have as many lines, {said}")
        if counts == {0}:
            raise UserError(f"the {split} split must hold text, {paths['source']} is empty")
        digest = "".join(f"{side}{scan.digest}" for side, scan in scans.items())
        with quiet_datasets():
            return datasets.Dataset.from_generator(
                _pairs,
                features=datasets.Features({side: datasets.Value("string") for side in paths}),
                cache_dir=None if cache_dir is None else str(cache_dir),
                gen_kwargs={"paths": {side: str(path) for side, path in paths.items()}},
                # The content names the cache, not the path: a changed file is read anew.
                fingerprint=hashlib.sha256(digest.encode()).hexdigest()[:32],
            )

    def _paths(self, split: str) -> dict[str, Path]:
        name = self.names[split]
        return {side: self.root / f"{name}.{suffix}" for side, suffix in self.suffixes.items()}


def _pairs(paths: dict[str, str]) -> Iterator[dict[str, str]]:
    for lines in zip(*(read_lines(Path(path)) for path in paths.values()), strict=True):
        yield dict(zip(paths, lines, strict=True))


class Multi30k:
    """Multi30k (Elliott 2016, arXiv 1605.00459): image captions; test is test_2016_flickr.

    Args:
        root: a directory with train.en train.de val.* test_2016_flickr.*; None to take
            `bentrevett/multi30k` from the hub (English and German).
        source: the source language's suffix or, on the hub, column.
        target: the target's.
    """

    def __init__(self, root: str | None = None, source: str = "en", target: str = "de") -> None:
        self._hub = root is None
        self._inner: Source
        if root is None:
            self._inner = Table(
                dataset="bentrevett/multi30k", source_column=source, target_column=target
            )
        else:
            self._inner = ParallelText(root, source, target, test="test_2016_flickr")

    def splits(self) -> list[str]:
        """Names the splits that are there."""
        return self._inner.splits()

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split; see `Source.load`."""
        try:
            return self._inner.load(split, cache_dir)
        except UserError as error:
            if not self._hub:
                raise
            raise UserError(
                f"{error}; give data.root=DIR, a directory with train.en, train.de and so on"
            ) from error


class DemoTranslation(ParallelText):
    """The bundled English-German sentences, written by a grammar: see the head of its files."""

    def __init__(self) -> None:
        super().__init__(str(BUNDLED / "demo_translation"), "en", "de")
