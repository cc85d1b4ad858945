"""Scores by source length."""

import pytest

from seqattn.analysis.lengths import LengthBin, length_bins, length_curves
from seqattn.errors import UserError

SOURCES = ["a b c", "a", "a b c d e", "", "a b", "a b c d e f g"]


def test_every_source_with_words_is_in_the_bin_that_its_words_fit():
    assert length_bins(SOURCES, [2, 5]) == [
        LengthBin("1-2", (1, 4)),
        LengthBin("3-5", (0, 2)),
        LengthBin("over 5", (5,)),
    ]


def test_a_bin_that_holds_nothing_is_left_out():
    assert [part.words for part in length_bins(SOURCES, [1, 8, 9])] == ["1-1", "2-8"]


@pytest.mark.parametrize("edges", [[], [0, 3], [4, 4], [5, 3]])
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(UserError, match=r"^lengths must be whole numbers that rise from at least"):
        length_bins(SOURCES, edges)


def test_a_curve_goes_through_its_values_over_the_bins():
    figure = length_curves({"a": [3.0, 1.5], "b": [2.0, 2.5]}, ["1-2", "over 2"], [7, 9], "BLEU")
    (axes,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert drawn == {"a": [3.0, 1.5], "b": [2.0, 2.5]}
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1-2\n7", "over 2\n9"]
    assert axes.get_ylabel() == "BLEU"
