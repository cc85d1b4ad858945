"""Teacher forcing by optimizer step."""

import math

import pytest

from seqattn.errors import UserError
from seqattn.training.forcing import TeacherForcing
from tests.nodes import made


def test_a_constant_share_is_the_same_at_every_step():
    assert [TeacherForcing(start=0.7)(step) for step in (0, 5, 10**6)] == [0.7] * 3


def test_a_linear_share_falls_to_its_floor_and_stays():
    forcing = TeacherForcing("linear", start=0.9, floor=0.5, steps=4)
    shares = [0.9, 0.8, 0.7, 0.6, 0.5, 0.5]
    assert [forcing(step) for step in range(6)] == pytest.approx(shares)


def test_the_inverse_sigmoid_is_bengios_between_start_and_floor():
    forcing = TeacherForcing("inverse_sigmoid", start=1.0, floor=0.2, steps=50)
    for step in (0, 30, 400):
        left = 50 / (50 + math.exp(step / 50))
        assert forcing(step) == pytest.approx(0.2 + 0.8 * left)
    assert forcing(10**7) == pytest.approx(0.2)
    half = TeacherForcing("inverse_sigmoid", steps=50)(round(50 * math.log(50)))
    assert half == pytest.approx(0.5, abs=0.01)


def test_it_says_whether_all_tokens_are_given():
    assert TeacherForcing().whole
    assert TeacherForcing("linear", floor=1.0).whole
    assert not TeacherForcing("linear").whole
    assert not TeacherForcing(start=0.99).whole


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"schedule": "cosine"},
            "schedule must be one of constant, linear, inverse_sigmoid, got 'cosine'",
        ),
        ({"start": 1.5}, "start must be a number from 0 to 1, got 1.5"),
        (
            {"schedule": "linear", "start": 0.5, "floor": 0.7},
            "task.teacher_forcing needs 0 <= floor <= start <= 1, got floor=0.7 start=0.5",
        ),
        (
            {"schedule": "linear", "steps": 0},
            "steps must be a whole number from 1 to 1,000,000,000, got 0",
        ),
    ],
)
def test_a_value_out_of_its_range_is_refused_in_words(options, text):
    with pytest.raises(UserError) as caught:
        made(TeacherForcing, **options)
    assert str(caught.value) == text
