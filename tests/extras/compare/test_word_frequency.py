"""F1 of words by their frequency in training."""

import pytest

from seqattn.extras.compare.word_frequency import BINS, f1_by_frequency, words_by_frequency

COUNTS = {"the": 1000, "dog": 9, "a": 999, "cat": 2, "once": 1}
OUTPUTS = ["the the dog", "a cat sat"]
REFERENCES = [["the dog dog once", "not read"], ["a cat sat"]]


def test_words_are_matched_within_their_sentence_and_counted_in_their_bin():
    found = dict(zip(BINS, f1_by_frequency(OUTPUTS, REFERENCES, COUNTS), strict=True))
    assert found == {
        "0": 100.0,  # sat
        "1": 0.0,  # once, not produced
        "2-4": 100.0,  # cat
        "5-9": pytest.approx(200 * 1 / (1 + 2)),  # dog
        "10-99": None,
        "100-999": 100.0,  # a
        "1,000+": pytest.approx(200 * 1 / (2 + 1)),  # the
    }
    assert words_by_frequency(REFERENCES, COUNTS) == [1, 1, 1, 2, 0, 1, 1]


def test_a_row_without_a_reference_has_no_words():
    assert f1_by_frequency(["dog"], [[]], COUNTS)[3] == 0.0
