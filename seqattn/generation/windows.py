"""Generation for sources that may be split into windows."""

from collections.abc import Sequence
from typing import NamedTuple

from seqattn.generation.base import Hypothesis, Progress
from seqattn.generation.constraints import Constraints
from seqattn.generation.generator import Generator

_WINDOW = 0x9E3779B1
"""Increment of the index of consecutive windows, so that each gets its own random numbers: a CPU
generator uses only the last 32 bits of a seed, which multiples of this odd number cover."""


class InWindow(NamedTuple):
    """A hypothesis, and the number of its window in the source."""

    hypothesis: Hypothesis
    window: int


def generate_from_windows(
    generator: Generator,
    sources: Sequence[Sequence[Sequence[int]]],
    places: Sequence[int] | None = None,
    progress: Progress | None = None,
    constraints: Sequence[Constraints] | None = None,
) -> list[list[Hypothesis]]:
    """Return hypotheses for each source from all of its windows, best scores first.

    Args:
        generator: the model with its search.
        sources: ids of each source's windows; a single one for an unsplit source.
        places: each source's index in the user's input; None if `sources` is all of it.
        progress: called after each batch, with the share of windows done in units of sources.
        constraints: of each source, for all of its windows; None for none.

    Returns:
        Hypotheses as in `Generator.generate`; at most as many per source as for a single window.
    """
    searched = search_windows(generator, sources, places, progress, constraints)
    return [[one.hypothesis for one in several] for several in searched]


def search_windows(
    generator: Generator,
    sources: Sequence[Sequence[Sequence[int]]],
    places: Sequence[int] | None = None,
    progress: Progress | None = None,
    constraints: Sequence[Constraints] | None = None,
) -> list[list[InWindow]]:
    """Return hypotheses with their windows. Args: as in `generate_from_windows`."""
    each = [
        (window, place + number * _WINDOW)
        for place, windows in zip(range(len(sources)) if places is None else places, sources)
        for number, window in enumerate(windows)
    ]
    windows = [window for window, _ in each]
    if constraints is not None:
        constraints = [one for one, parts in zip(constraints, sources, strict=True) for _ in parts]

    def tell(done: int, total: int, tokens: int) -> None:
        if progress is not None:
            progress(done * len(sources) // total, len(sources), tokens)

    places = [place for _, place in each]
    outputs = iter(generator.generate(windows, places, tell, constraints))
    results = []
    for source in sources:
        parts = [next(outputs) for _ in source]
        best: dict[tuple[int, ...], InWindow] = {}
        candidates = [InWindow(h, number) for number, part in enumerate(parts) for h in part]
        for one in sorted(candidates, key=lambda one: -one.hypothesis.score):
            best.setdefault(one.hypothesis.ids, one)
        results.append(list(best.values())[: max(map(len, parts))])
    return results
