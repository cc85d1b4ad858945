"""Documents and their summaries."""

from __future__ import annotations

from pathlib import Path

from seqattn.checking import checked
from seqattn.data.table import Table
from seqattn.places import shipped


@checked
class Aeslc(Table):
    """AESLC (Zhang and Tetreault 2019, arXiv 1906.03497): business e-mails and their subjects.

    Files `ROOT/train.jsonl`, `ROOT/dev.jsonl` and, where there is one, `ROOT/test.jsonl` with
    `document`, `summary` and, except in train, `references`. The public files have no test part.

    Args:
        root: the directory.
        all_references: score against the several subjects of each e-mail, the original among
            them; else against the original alone, as published figures do. The best of several
            counts, so the two do not compare.
    """

    no_test = "dev.jsonl is split=val"

    def __init__(self, root: str, all_references: bool = False) -> None:
        names = {"train": "train.jsonl", "val": "dev.jsonl", "test": "test.jsonl"}
        super().__init__(
            {split: str(Path(root) / name) for split, name in names.items()},
            source_column="document",
            target_column="summary",
            references_column="references" if all_references else None,
        )

    def _references(self, split: str) -> str | None:
        return None if split == "train" else self.references_column


class DemoSummarization(Table):
    """The bundled reports and their headlines, written by a generator: see its README."""

    def __init__(self) -> None:
        folder = shipped("data") / "demo_summarization"
        super().__init__({s: str(folder / f"{s}.jsonl") for s in ("train", "val", "test")})
