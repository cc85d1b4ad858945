"""Scores of documents: of their joined texts, and by a sentence's position in its document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.outputs import Outputs
from seqattn.bundle.text_options import TextOption
from seqattn.data.base import Texts
from seqattn.metrics.text import TextScore

_POSITIONS = {"1": range(1), "2": range(1, 2), "3-4": range(2, 4), "5-8": range(4, 8)}
"""Positions of sentences in their documents that are scored together; further ones follow."""


@dataclass(frozen=True)
class DocumentScores(TextOption):
    """Scores of the documents of a split, whose data tells them apart.

    The texts of a document are joined by spaces (Liu et al. 2020, arXiv 2001.08210, call BLEU of
    these d-BLEU); intervals are over documents.
    """

    has_columns: ClassVar[bool] = True  # of `evaluate` alone
    has_effect = False

    def evaluated(
        self, bundle: Any, outputs: Outputs, scorer: Any, split: str, directory: Path, part: Any
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return scores of joined documents, and of sentences by position, with their table."""
        documents = documents_of(outputs.rows)
        if not documents or not hasattr(scorer, "sentences"):
            return {}, {}
        scores = _joined_scores(outputs, documents, scorer)
        figures: dict[str, Any] = {"documents": len(documents)}
        table = {"documents": f"{len(documents):,}"}
        for score in scores:
            name, within = f"d-{score.name}", score.interval
            figures[name] = {"value": score.value, "signature": score.signature}
            figures[name] |= {"interval": [*within]} if within else {}
            spread = f" ({within[0]:.2f} to {within[1]:.2f})" if within else ""
            table[name] = f"{score.value:.2f}{spread}   {score.signature}"
        numbers: Any = outputs.rows.documents
        for counts in scorer.sentences(outputs.texts, outputs.rows.references):
            if ends := counts.by_group([*map(str, numbers)]).interval():
                figures[counts.name] = {"interval": [*ends]}
                table[f"{counts.name} over documents"] = f"{ends[0]:.2f} to {ends[1]:.2f}"
        figures["by_position"] = []
        for position, rows in _by_position(documents).items():
            texts = [outputs.texts[row] for row in rows]
            each = outputs.rows.at(rows).score(scorer, texts)
            values = {score.name: score.value for score in each}
            figures["by_position"].append({"position": position, "rows": len(rows), **values})
            first = f"{each[0].name} {each[0].value:.2f}"
            table[f"position {position}"] = f"{first} ({len(rows):,} rows)"
        return figures, table


def documents_of(rows: Texts) -> list[list[int]]:
    """Return the rows of each document of several rows or one, without those that are empty."""
    if rows.documents is None:
        return []
    filled = [row for row, source in enumerate(rows.sources) if source.strip()]
    numbers: Sequence[int] = rows.documents
    return [[*group] for _, group in groupby(filled, lambda row: numbers[row])]


def _joined_scores(
    outputs: Outputs, documents: Sequence[Sequence[int]], scorer: Any
) -> list[TextScore]:
    rows = outputs.rows
    columns = [min(len(rows.references[row]) for row in some) for some in documents]
    references = [
        [" ".join(rows.references[row][column] for row in some) for column in range(count)]
        for some, count in zip(documents, columns, strict=True)
    ]
    sources = [" ".join(rows.sources[row] for row in some) for some in documents]
    texts = [" ".join(outputs.texts[row] for row in some) for some in documents]
    scores: list[TextScore] = scorer.score(texts, references, sources)
    ends = {one.name: one.interval() for one in scorer.sentences(texts, references)}
    return [replace(score, interval=ends.get(score.name)) for score in scores]


def _by_position(documents: Sequence[Sequence[int]]) -> Mapping[str, list[int]]:
    """Return the rows at each position that some document has."""
    longest = max(map(len, documents))
    positions = {**_POSITIONS, "from 9": range(8, longest)}
    rows = {
        name: [some[at] for some in documents for at in span if at < len(some)]
        for name, span in positions.items()
    }
    return {name: some for name, some in rows.items() if some}
