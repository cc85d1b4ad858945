"""Accuracy of output words by their frequency in the training data."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from seqattn.metrics.scripts import split_words

EDGES = (1, 2, 5, 10, 100, 1000)
"""Minimum count of each bin but the first, which holds words unseen in training."""
BINS = ("0", "1", "2-4", "5-9", "10-99", "100-999", "1,000+")


def f1_by_frequency(
    outputs: Sequence[str], references: Sequence[Sequence[str]], counts: Mapping[str, int]
) -> list[float | None]:
    """Compute F1 of words by bin, 0 to 100, as in compare-mt (Neubig et al. 2019, 1903.07926).

    Args:
        outputs: N texts.
        references: references of each output; only the first is used.
        counts: word counts of the training targets.

    Returns:
        F1 for each bin; None if no output and no reference has a word in it.
    """
    produced = [Counter(split_words(output)) for output in outputs]
    expected = [_words(texts) for texts in references]
    matched = [output & reference for output, reference in zip(produced, expected, strict=True)]
    bin_counts = (_in_bins(words, counts) for words in (produced, expected, matched))
    return [
        200 * right / (num_output + num_reference) if num_output + num_reference else None
        for num_output, num_reference, right in zip(*bin_counts, strict=True)
    ]


def words_by_frequency(references: Sequence[Sequence[str]], counts: Mapping[str, int]) -> list[int]:
    """Count the words of the (first) references in each of `BINS`."""
    return _in_bins([_words(texts) for texts in references], counts)


def _words(texts: Sequence[str]) -> Counter[str]:
    return Counter(split_words(texts[0]) if texts else ())


def _in_bins(sentences: Sequence[Counter[str]], counts: Mapping[str, int]) -> list[int]:
    totals = [0] * len(BINS)
    for words in sentences:
        for word, number in words.items():
            totals[bisect_right(EDGES, counts.get(word, 0))] += number
    return totals
