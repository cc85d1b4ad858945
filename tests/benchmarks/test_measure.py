"""Comparing measurements."""

import pytest

from benchmarks.suite import Sample, Spread, rates, ratios, take_turns


def test_a_ratio_is_taken_round_by_round():
    ours = [Sample(1.0, 1.0, 10), Sample(4.0, 2.0, 20), Sample(1.0, 1.0, 30)]
    theirs = [Sample(2.0, 3.0, 10), Sample(4.0, 8.0, 20), Sample(3.0, 5.0, 30)]
    assert ratios(ours, theirs) == Spread(2.0, 1.0, 3.0)
    assert ratios(ours, theirs, cpu=True) == Spread(4.0, 3.0, 5.0)
    assert rates(ours) == Spread(10.0, 5.0, 30.0)


def test_unequal_work_is_refused():
    with pytest.raises(ValueError, match="must be equal, got 10 and 11"):
        ratios([Sample(1.0, 1.0, 10)], [Sample(1.0, 1.0, 11)])


def test_contestants_take_turns_and_every_other_round_goes_backwards():
    calls = []

    def contestant(name):
        def turn(number):
            calls.append(f"{name}{number}")
            return Sample(1.0, 1.0, number)

        return turn

    found = take_turns({"a": contestant("a"), "b": contestant("b")}, range(3))
    assert " ".join(calls) == "b0 a0 a1 b1 b2 a2"
    assert [sample.units for sample in found["a"]] == [0, 1, 2]
