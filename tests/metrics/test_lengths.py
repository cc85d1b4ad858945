"""Scores by source length."""

import pytest

from seqattn.errors import UserError
from seqattn.metrics.lengths import LengthBin, length_bins

SOURCES = ["a b c", "a", "a b c d e", "", "a b", "a b c d e f g"]


def test_every_source_is_in_the_bin_that_its_words_fit():
    assert length_bins(SOURCES, [2, 5]) == [
        LengthBin("0", (3,)),
        LengthBin("1-2", (1, 4)),
        LengthBin("3-5", (0, 2)),
        LengthBin("over 5", (5,)),
    ]


def test_a_bin_that_holds_nothing_is_left_out():
    assert [part.words for part in length_bins(SOURCES[:3], [1, 8, 9])] == ["1", "2-8"]


@pytest.mark.parametrize("edges", [[], [0, 3], [4, 4], [5, 3]])
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(UserError, match=r"^lengths must be increasing integers of at least"):
        length_bins(SOURCES, edges)
