"""Documents and their summaries."""

from __future__ import annotations

from pathlib import Path

import datasets

from seqattn.data.sources import BUNDLED
from seqattn.data.table import Table


class Aeslc:
    """AESLC (Zhang and Tetreault 2019, arXiv 1906.03497): business e-mails and their subjects.

    Files `ROOT/train.jsonl` and `ROOT/dev.jsonl` with `document`, `summary` and, in dev,
    `references`. The public files have no test part: val and test are both dev, so that a figure
    for "test" is one on data that may have chosen the checkpoint.

    Args:
        root: the directory.
        all_references: score against dev's several subjects, the original among them; else
            against the original alone, as published figures do. The best of several counts, so
            the two do not compare.
    """

    def __init__(self, root: str, all_references: bool = False) -> None:
        folder = Path(root).expanduser()
        files = {split: str(folder / f"{name}.jsonl") for split, name in _AESLC_FILES.items()}
        self._plain = Table(files, source_column="document", target_column="summary")
        self._several = self._plain
        if all_references:
            self._several = Table(
                files,
                source_column="document",
                target_column="summary",
                references_column="references",
            )

    def splits(self) -> list[str]:
        """Names the splits whose file is there."""
        return [split for split, path in self._plain.files.items() if path.is_file()]

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        """Reads a split; see `Source.load`."""
        source = self._plain if split == "train" else self._several
        return source.load(split, cache_dir)


_AESLC_FILES = {"train": "train", "val": "dev", "test": "dev"}


class DemoSummarization(Table):
    """The bundled reports and their headlines, written by a generator: see its README."""

    def __init__(self) -> None:
        folder = BUNDLED / "demo_summarization"
        files = {split: str(folder / f"{split}.jsonl") for split in ("train", "val", "test")}
        super().__init__(files)
