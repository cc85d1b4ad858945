"""Trainings that are killed at random instants; `python -m tests.kills` is the long form."""

import random

import pytest

from tests.kills import cases, try_case


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("transformer workers=0 ranks=1 32", 3),
        pytest.param("spans workers=2 ranks=2 bf16-mixed", 3, marks=pytest.mark.exhaustive),
    ],
)
def test_a_killed_training_that_is_started_again_is_the_uninterrupted_one(tmp_path, name, kills):
    differs, done = try_case(tmp_path, dict(cases())[name], kills, random.Random(name))
    assert differs is None
    assert done
