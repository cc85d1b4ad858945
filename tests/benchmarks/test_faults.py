"""Planted faults are what they are said to be, wherever they are planted."""

from random import Random

import pytest

from benchmarks.faults import KINDS, Pair, inserted, removed, repeated, shuffled

PAIR = Pair([*"abcdef"], [*"uvwxy"])
OTHER = Pair([*"ghijk"], [*"lmnop"])


@pytest.mark.parametrize("seed", range(20))
def test_a_fault_is_of_2_to_4_words_at_its_place(seed):
    found = {plant: plant(PAIR, OTHER, Random(seed)) for plant in KINDS}
    one = found[removed]
    assert one.source == PAIR.source[: one.begin] + PAIR.source[one.end :]
    assert one.output == PAIR.output
    one = found[inserted]
    assert one.source[: one.begin] + one.source[one.end :] == PAIR.source
    assert " ".join(one.source[one.begin : one.end]) in " ".join(OTHER.source)
    one = found[repeated]
    size = one.end - one.begin
    assert one.output[one.begin : one.end] == one.output[one.begin - size : one.begin]
    assert one.output[: one.begin] + one.output[one.end :] == PAIR.output
    assert all(2 <= found[plant].end - found[plant].begin <= 4 for plant in KINDS[:3])
    assert found[shuffled][:2] == (PAIR.source, OTHER.output)
