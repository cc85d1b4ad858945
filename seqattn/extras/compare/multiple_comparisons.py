"""Pairwise tests of many systems: corrected p values, and groups without differences."""

from collections.abc import Mapping, Sequence

from seqattn.metrics.significance import Pair


def holm(p_values: Mapping[Pair, float]) -> dict[Pair, float]:
    """Correct p values for all pairs together, controlling the family-wise error (Holm 1979)."""
    corrected, largest = {}, 0.0
    for number, pair in enumerate(sorted(p_values, key=lambda pair: p_values[pair])):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[pair]))
        corrected[pair] = largest
    return {pair: corrected[pair] for pair in p_values}


def groups(names: Sequence[str], different: set[Pair]) -> list[list[str]]:
    """Return the maximal sets of systems without a significant difference, in the order of `names`.

    Args:
        names: systems, the best first.
        different: pairs in either order.
    """
    apart = {frozenset(pair) for pair in different}
    sets: list[list[str]] = []
    for name in names:
        grown = [
            [one for one in group if {one, name} not in apart] + [name] for group in [*sets, []]
        ]
        sets = _largest([*sets, *grown])
    return sets


def _largest(sets: Sequence[list[str]]) -> list[list[str]]:
    """Return the sets that are not a subset of another, each once."""
    distinct = [list(a) for a in dict.fromkeys(map(tuple, sets))]
    return [a for a in distinct if not any(set(a) < set(b) for b in distinct)]
