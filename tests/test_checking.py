"""Values checked by the types and bounds of what takes them."""

import importlib
from dataclasses import dataclass
from typing import Literal

import pytest

from seqattn.checking import BadValue, Count, Dropout, Positive, Share, Width, check, keys_under
from seqattn.errors import UserError


@dataclass(frozen=True)
class Shape:
    dim: Width = 3
    activation: Literal["relu", "gelu"] = "relu"
    betas: tuple[float, float] = (0.9, 0.98)
    lengths: list[Count] | None = None
    dropout: Dropout = 0.0
    share: Share = 1.0
    scale: Positive = 1.0
    name: str | None = None
    kinds: list[Literal["a", "b"]] | None = None
    other: object = None


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"dim": 0}, "dim must be a whole number from 1 to 65,536, got 0"),
        ({"dim": 10**12}, "dim must be a whole number from 1 to 65,536, got 10"),
        ({"dim": True}, "dim must be a whole number from 1 to 65,536, got True"),
        ({"dim": 2.5}, "dim must be a whole number"),
        ({"activation": "tanh"}, "activation must be one of relu, gelu, got 'tanh'"),
        ({"betas": [0.9]}, "betas must be a list of 2 numbers, got [0.9]"),
        ({"lengths": [1, 0]}, "lengths must be a list of whole numbers or null, got [1, 0]"),
        ({"kinds": ["c"]}, "kinds must be a list of values from a, b or null, got ['c']"),
        ({"dropout": 1}, "dropout must be a number of at least 0 and below 1, got 1"),
        ({"dropout": float("nan")}, "dropout must be a number"),
        ({"share": 1.01}, "share must be a number from 0 to 1, got 1.01"),
        (
            {"scale": float("inf")},
            "scale must be a number above 0 and of at most 1,000,000,000, got inf",
        ),
        ({"scale": "1"}, "scale must be a number"),
        ({"name": 3}, "name must be text or null, got 3"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_must_hold(given, line):
    with pytest.raises(BadValue) as error:
        check(Shape, given)
    assert str(error.value).startswith(line)


def test_values_that_fit_pass_and_what_has_no_type_is_left_alone():
    check(Shape, {"dim": 4, "activation": "gelu", "betas": [0.5, 0.6], "lengths": [3]})
    check(Shape, {"dropout": 0, "scale": 1, "other": object(), "unknown": "x"})


def test_fields_of_a_base_are_checked_by_what_its_own_module_means(tmp_path, monkeypatch):
    head = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from seqattn.checking import Count as Number\n"
    )
    base = "@dataclass\nclass Base:\n    size: Number = 1\n"
    mine = "@dataclass\nclass Mine(Base):\n    own: int = 1\n"
    (tmp_path / "of_one.py").write_text(head + base)
    (tmp_path / "of_other.py").write_text(
        head.replace("Count as Number", "Width") + "from of_one import Base\n" + mine
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("of_other").Mine
    for wrong in ({"size": 0}, {"own": "1"}):
        with pytest.raises(BadValue):
            check(made, wrong)


def test_a_key_can_be_put_under_another():
    with pytest.raises(UserError, match=r"^model\.dim must be a whole number"), keys_under("model"):
        check(Shape, {"dim": 0})
