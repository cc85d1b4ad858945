"""What tests of each two say of many systems together."""

from collections.abc import Mapping, Sequence

from seqattn.metrics.significance import Pair


def holm(p_values: Mapping[Pair, float]) -> dict[Pair, float]:
    """p for all pairs together: below a level, with that probability, none errs (Holm 1979)."""
    found, largest = {}, 0.0
    for number, pair in enumerate(sorted(p_values, key=lambda pair: p_values[pair])):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[pair]))
        found[pair] = largest
    return {pair: found[pair] for pair in p_values}


def groups(names: Sequence[str], told_apart: set[Pair]) -> list[list[str]]:
    """The largest sets of systems of which no two can be told apart, in the order of `names`.

    Args:
        names: of systems, the best first.
        told_apart: pairs in either order.
    """
    apart = {frozenset(pair) for pair in told_apart}
    found: list[list[str]] = []
    for name in names:
        grown = [
            [one for one in group if {one, name} not in apart] + [name] for group in [*found, []]
        ]
        found = _largest([*found, *grown])
    return found


def _largest(sets: Sequence[list[str]]) -> list[list[str]]:
    """Those that are part of no other, each once."""
    distinct = [list(one) for one in dict.fromkeys(map(tuple, sets))]
    return [one for one in distinct if not any(set(one) < set(other) for other in distinct)]
