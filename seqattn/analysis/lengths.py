"""Scores by how long the source is."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.figure import Figure

from seqattn.errors import UserError


class LengthBin(NamedTuple):
    """Sources of similar length.

    `words` says which, as "9-12" or "over 20", between white space; `rows` are their places.
    """

    words: str
    rows: tuple[int, ...]


def length_bins(sources: Sequence[str], edges: Sequence[int]) -> list[LengthBin]:
    """Sorts sources by their words into bins; those that hold none are left out.

    Args:
        sources: texts.
        edges: the most words of each bin, rising; one more bin holds what is longer.

    Raises:
        UserError: for edges that do not rise from at least 1.
    """
    if not edges or edges[0] < 1 or any(a >= b for a, b in pairwise(edges)):
        raise UserError(f"lengths must be whole numbers that rise from at least 1, got {edges}")
    counts = [len(source.split()) for source in sources]
    bins = []
    low = 0
    for high in edges:
        rows = tuple(n for n, count in enumerate(counts) if low < count <= high)
        bins.append(LengthBin(f"{low + 1}-{high}", rows))
        low = high
    bins.append(LengthBin(f"over {low}", tuple(n for n, c in enumerate(counts) if c > low)))
    return [part for part in bins if part.rows]


def length_curves(
    series: Mapping[str, Sequence[float]], words: Sequence[str], counts: Sequence[int], score: str
) -> Figure:
    """A line for each name: a score against the source's length.

    Args:
        series: a value for each bin, by name.
        words: what each bin holds, as `LengthBin.words`.
        counts: sources in each bin.
        score: what the values are.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    places = range(len(words))
    for number, (name, values) in enumerate(series.items()):
        style = "-" if number < 10 else "--"
        axes.plot(places, values, style, marker="o", markersize=4, color=f"C{number}", label=name)
    axes.set_xticks(places, [f"{w}\n{c:,}" for w, c in zip(words, counts, strict=True)])
    axes.set_xlabel("words of the source; sentences of that length")
    axes.set_ylabel(score)
    axes.set_title(f"{score} by source length")
    axes.grid(True, alpha=0.2)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure
