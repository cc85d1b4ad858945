"""A search over sources of which some are read in windows."""

from collections.abc import Sequence
from typing import NamedTuple

from seqattn.generation.base import Hypothesis, Progress
from seqattn.generation.generator import Generator

_WINDOW = 0x9E3779B1
"""From one window's place to the next, so that each draws random numbers of its own: a generator
on a CPU knows the last 32 bits of a seed alone, over which multiples of this odd number scatter."""


class InWindow(NamedTuple):
    """A hypothesis, and the number of the source's window in which it was found."""

    hypothesis: Hypothesis
    window: int


def generate_from_windows(
    generator: Generator,
    sources: Sequence[Sequence[Sequence[int]]],
    places: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses for each source from all of its windows, those with the best scores first.

    Args:
        generator: the model with its search.
        sources: the ids of each source's windows; one of a source that is read as a whole.
        places: each source's place in the user's input; None where these are all of it.
        progress: called after each batch; it is told the share of windows done, in sources.

    Returns:
        As `Generator.generate`; as many for each source as a window alone would give at most.
    """
    found = search_windows(generator, sources, places, progress)
    return [[one.hypothesis for one in several] for several in found]


def search_windows(
    generator: Generator,
    sources: Sequence[Sequence[Sequence[int]]],
    places: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[list[InWindow]]:
    """As `generate_from_windows`, each hypothesis with the window in which it was found."""
    each = [
        (window, place + number * _WINDOW)
        for place, windows in zip(range(len(sources)) if places is None else places, sources)
        for number, window in enumerate(windows)
    ]
    windows = [window for window, _ in each]

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(done * len(sources) // total, len(sources))

    found = iter(generator.generate(windows, [place for _, place in each], tell))
    results = []
    for source in sources:
        parts = [next(found) for _ in source]
        best: dict[tuple[int, ...], InWindow] = {}
        said = [InWindow(h, number) for number, part in enumerate(parts) for h in part]
        for one in sorted(said, key=lambda one: -one.hypothesis.score):
            best.setdefault(one.hypothesis.ids, one)
        results.append(list(best.values())[: max(map(len, parts))])
    return results
