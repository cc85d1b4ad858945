"""The alignment error rate is Och and Ney's, over the whole corpus."""

import pytest
import torch

from seqattn.extras.explain.alignment_error import AlignmentErrorRate


def rate(*sentences):
    metric = AlignmentErrorRate()
    for sentence in sentences:
        metric.update(*map(set, sentence))
    return float(metric.compute())


def test_it_is_the_share_that_is_neither_sure_nor_possible():
    found, sure = [(0, 0), (1, 1), (2, 1)], [(0, 0), (2, 2)]
    assert rate((found, sure, [*sure, (1, 1)])) == pytest.approx(100 * (1 - (1 + 2) / (3 + 2)))


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ([(0, 0)], 0.0),  # no possible link needs to be found
        ([(0, 0), (1, 1)], 0.0),
        ([(1, 1)], 50.0),  # the sure one is not found
        ([(0, 1)], 100.0),
        ([], 100.0),
    ],
)
def test_possible_links_may_be_found_and_sure_ones_must(found, error):
    assert rate((found, [(0, 0)], [(0, 0), (1, 1)])) == error


def test_sure_links_are_possible_whether_they_are_listed_or_not():
    assert rate(([(0, 0)], [(0, 0)], [])) == 0.0


def test_a_corpus_counts_links_and_not_sentences():
    short = ([(0, 0)], [(0, 0)], [])
    long = ([(0, 0), (1, 1), (2, 2)], [(0, 3), (1, 3), (2, 3)], [])
    assert rate(short, long) == pytest.approx(100 * (1 - 2 / 8))


def test_without_any_link_it_is_not_a_number():
    assert torch.isnan(AlignmentErrorRate().compute())
