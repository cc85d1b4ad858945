"""Learning-rate schedules against their formulas, written out."""

import math

import pytest

from seqattn.errors import UserError
from seqattn.training.schedules import constant, cosine, inverse_sqrt, linear, noam

STEPS = (0, 1, 3, 4, 5, 9, 11, 12, 40)
WARMUP, TOTAL, DIM = 4, 12, 24


def at(schedule):
    return [schedule(step) for step in STEPS]


def test_constant_rises_in_equal_parts_and_stays():
    assert at(constant(WARMUP)) == [0.25, 0.5, 1, 1, 1, 1, 1, 1, 1]
    assert at(constant(0)) == [1] * len(STEPS)


def test_inverse_sqrt_falls_as_fairseqs():
    wanted = [0.25, 0.5, 1.0, *(2 / math.sqrt(step + 1) for step in STEPS[3:])]
    assert at(inverse_sqrt(WARMUP)) == pytest.approx(wanted)


def test_noam_is_the_papers_equation_3():
    wanted = [
        DIM**-0.5 * min(number**-0.5, number * WARMUP**-1.5)
        for number in (step + 1 for step in STEPS)
    ]
    assert at(noam(WARMUP, DIM)) == pytest.approx(wanted)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine_is_half_a_wave_from_the_peak_to_the_floor(floor):
    half = [
        floor + (1 - floor) * (1 + math.cos(math.pi * done / (TOTAL - WARMUP))) / 2
        for done in (1, 2, 6, 8, 8, 8)  # steps since the warm-up's last
    ]
    assert at(cosine(WARMUP, TOTAL, floor)) == pytest.approx([0.25, 0.5, 1.0, *half])


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_linear_is_a_straight_line_from_the_peak_to_the_floor(floor):
    line = [1 - (1 - floor) * done / (TOTAL - WARMUP) for done in (1, 2, 6, 8, 8, 8)]
    assert at(linear(WARMUP, TOTAL, floor)) == pytest.approx([0.25, 0.5, 1.0, *line])


@pytest.mark.parametrize("make", [cosine, linear])
def test_a_descent_begins_at_the_peak_and_its_last_step_is_not_for_nothing(make):
    for warmup, total in ((0, 5), (1, 5), (4, 5), (0, 2)):
        rates = [make(warmup, total)(step) for step in range(total)]
        assert max(rates) == rates[max(0, warmup - 1)] == 1
        assert rates[-1] == pytest.approx(0.01)
    assert make(0, 1)(0) == 1
    assert make(0, 5, 0.0)(4) == 0
    assert linear(0, 5, 0.0)(1) == 0.75


@pytest.mark.parametrize("make", [inverse_sqrt, lambda steps: constant(0), constant])
def test_the_others_begin_at_the_peak_where_there_is_no_warm_up(make):
    assert make(1)(0) == 1


@pytest.mark.parametrize("make", [cosine, linear])
@pytest.mark.parametrize("total", [-1, 0, WARMUP])
def test_an_end_before_the_warm_ups_is_refused_with_what_to_set(make, total):
    with pytest.raises(UserError) as caught:
        make(WARMUP, total)
    assert str(caught.value) == (
        f"schedule.total_steps must be above schedule.warmup_steps (4), got {total}; "
        "set trainer.max_steps, schedule.total_steps or schedule.warmup_steps"
    )
