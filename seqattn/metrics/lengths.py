"""Sources grouped by length."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from seqattn.errors import UserError
from seqattn.metrics.scripts import split_words


class LengthBin(NamedTuple):
    """Sources of similar length."""

    words: str
    """Number of words (see `split_words`), such as "9-12", "9" or "over 20"; "0" if empty."""
    rows: tuple[int, ...]


def length_bins(sources: Sequence[str], edges: Sequence[int]) -> list[LengthBin]:
    """Group sources by number of words; empty bins are omitted.

    Args:
        sources: texts.
        edges: maximum words of each bin, increasing; one more bin holds longer sources.

    Raises:
        UserError: edges do not increase from at least 1.
    """
    if not edges or edges[0] < 1 or any(a >= b for a, b in pairwise(edges)):
        raise UserError(f"lengths must be increasing integers of at least 1, got {edges}")
    spans = [(-1, 0), *pairwise([0, *edges])]
    bounds = [
        (f"{low + 1}-{high}" if low + 1 < high else f"{high}", low, high) for low, high in spans
    ]
    counts = [len(split_words(source)) for source in sources]
    bins = [
        LengthBin(name, tuple(row for row, count in enumerate(counts) if low < count <= high))
        for name, low, high in [*bounds, (f"over {edges[-1]}", edges[-1], float("inf"))]
    ]
    return [part for part in bins if part.rows]
