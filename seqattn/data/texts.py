"""A split's texts as plain lists, for evaluation."""

from __future__ import annotations

from typing import NamedTuple

from datasets import Dataset

from seqattn.data.sources import references_of


class Texts(NamedTuple):
    """Rows as they came, nothing left out."""

    sources: list[str]
    targets: list[str]
    """Empty where the split has only sources."""
    references: list[list[str]]
    """One or more for each source; the target alone where there are no others."""
    ids: list[str] | None
    """What names each row; None where nothing does."""

    @classmethod
    def of(cls, table: Dataset) -> Texts:
        """Reads the columns "source", "target", "references", "id", as far as they are there."""
        names = table.column_names
        targets = list(table["target"]) if "target" in names else []
        references = references_of(table) if {"target", "references"} & set(names) else []
        ids = [str(name) for name in table["id"]] if "id" in names else None
        return cls(list(table["source"]), targets, references, ids)
