"""Which source each step reads: shares, ends of stages, and places found without earlier steps."""

import time

import numpy as np
import pytest

from seqattn.errors import UserError
from seqattn.extras.mixture.schedule import Schedule, Stage

SIZES = {"clean": 7, "back": 11, "small": 3}
STAGES = [
    Stage({"clean": 2, "back": 1}, 5, "back"),
    Stage({"small": 1, "clean": 3}, 17),
    Stage(None, 0.5, "clean"),
    Stage({"clean": 0.001, "back": 1}),
]


def counts(schedule, steps):
    return np.bincount(schedule.sources(0, steps), minlength=len(SIZES)).tolist()


def test_any_part_of_the_schedule_is_computed_without_the_steps_before_it():
    schedule, steps = Schedule(STAGES, SIZES, 4), 700
    sources = schedule.sources(0, steps)
    for first in [0, 1, 99, *(end + one for end in schedule.ends for one in (-1, 0, 1)), 500]:
        assert schedule.read(first) == np.bincount(sources[:first], minlength=3).tolist()
        for count in (0, 1, 7, 200):
            assert (
                schedule.sources(first, count).tolist() == sources[first : first + count].tolist()
            )


def test_a_stage_ends_with_the_step_that_completes_its_passes():
    schedule = Schedule(STAGES, SIZES, 4)
    first, second, third = schedule.ends
    assert second == first + 17
    assert schedule.read(first)[1] == 5 * SIZES["back"] == schedule.read(first - 1)[1] + 1
    assert schedule.read(third)[0] - schedule.read(second)[0] == 4  # half of seven, rounded
    assert not {1} & {*schedule.sources(first, 17).tolist()}


@pytest.mark.parametrize("share", [0.5, 0.37, 0.999, 0.01])
@pytest.mark.parametrize("seed", [0, 5])
def test_every_part_of_a_stage_has_the_shares_of_its_weights(share, seed):
    schedule = Schedule([Stage({"clean": share, "back": 1 - share})], SIZES, seed)
    before = np.cumsum(schedule.sources(0, 20_000) == 0) - share * np.arange(1, 20_001)
    assert np.ptp(before) < 5
    assert schedule.read(10**9)[0] == pytest.approx(share * 10**9, abs=5)


def test_passes_of_rare_sources_are_complete_too():
    chance = np.random.default_rng(0)
    for seed in range(40):
        share = 10 ** -chance.uniform(0.1, 6)
        stages = [Stage({"small": share, "back": 1 - share}, 1, "small"), Stage()]
        schedule = Schedule(stages, SIZES, seed)
        assert schedule.read(schedule.ends[0])[2] == 3 == schedule.read(schedule.ends[0] - 1)[2] + 1


def test_without_weights_all_sources_end_their_passes_together():
    schedule, steps = Schedule([Stage()], SIZES, 1), sum(SIZES.values())
    passes = np.array(schedule.read(100 * steps)) / [*SIZES.values()]
    np.testing.assert_allclose(passes, 100, atol=0.7)


def test_after_its_last_end_the_last_stage_goes_on():
    schedule = Schedule([Stage({"clean": 1}, 5), Stage({"back": 1}, 4)], SIZES, 0)
    assert schedule.ends == [5, 9]
    assert schedule.sources(0, 30).tolist() == [0] * 5 + [1] * 25
    assert schedule.summary == (
        "stage 1 to step 5: clean 1; stage 2 to step 9: back 1; it goes on after that "
        "(trainer.max_steps=9 ends there)"
    )


def test_other_seeds_draw_other_orders():
    orders = {tuple(Schedule(STAGES, SIZES, seed).sources(0, 50).tolist()) for seed in range(4)}
    assert len(orders) == 4


def test_long_stages_take_no_longer_and_endless_ones_are_refused():
    began = time.perf_counter()
    rare = [Stage({"small": 1e-9, "back": 1}, 3, "small"), Stage()]
    schedule = Schedule(rare, SIZES, 0)
    assert schedule.read(schedule.ends[0])[2] == 9
    assert time.perf_counter() - began < 0.5
    with pytest.raises(UserError, match=r"stage 1 of data.stages has too many steps"):
        Schedule([Stage({"small": 1e-18, "back": 1}, 3, "small"), Stage()], SIZES, 0)
