"""Outputs for sources that are read in several windows."""

from collections.abc import Sequence

from seqattn.generation.base import Generator, Hypothesis


def generate_from_windows(
    generator: Generator, sources: Sequence[Sequence[Sequence[int]]]
) -> list[list[Hypothesis]]:
    """Hypotheses for each source from all of its windows, those with the best scores first.

    Args:
        generator: the model with its search.
        sources: the ids of each source's windows; one of a source that is read as a whole.

    Returns:
        As `Generator.generate`; as many for each source as a window alone would give at most.
    """
    found = iter(generator.generate([window for windows in sources for window in windows]))
    results = []
    for windows in sources:
        each = [next(found) for _ in windows]
        best: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in sorted((h for part in each for h in part), key=lambda h: -h.score):
            best.setdefault(hypothesis.ids, hypothesis)
        results.append(list(best.values())[: max(map(len, each))])
    return results
