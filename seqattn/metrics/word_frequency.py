"""How well words are produced, by how often they stood in the training data."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

EDGES = (1, 2, 5, 10, 100, 1000)
"""The least count of each bin but the first, which holds words that training never saw."""
BINS = ("0", "1", "2-4", "5-9", "10-99", "100-999", "1,000 on")


def f1_by_frequency(
    outputs: Sequence[str], references: Sequence[Sequence[str]], counts: Mapping[str, int]
) -> list[float | None]:
    """F1 of words in each of `BINS`, 0 to 100, as compare-mt (Neubig et al. 2019, 1903.07926).

    Args:
        outputs: N texts, words parted by white space.
        references: of each; of several, the first counts.
        counts: of words in the training targets.

    Returns:
        A figure for each bin; None where no output and no reference has a word of it.
    """
    matched, made, wanted = Counter[int](), Counter[int](), Counter[int]()
    for output, texts in zip(outputs, references, strict=True):
        ours, theirs = Counter(output.split()), Counter((texts[0] if texts else "").split())
        for found, words in ((matched, ours & theirs), (made, ours), (wanted, theirs)):
            for word, number in words.items():
                found[bisect_right(EDGES, counts.get(word, 0))] += number
    return [
        200 * matched[number] / (made[number] + wanted[number])
        if made[number] + wanted[number]
        else None
        for number in range(len(BINS))
    ]
