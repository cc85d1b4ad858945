"""Roles: what a field declares is what resuming and comparing make of it."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from seqattn.checking import Dropout, parameters
from seqattn.roles import Role
from seqattn.training.options import TrainingOptions
from seqattn.training.setting_roles import differences, leaves, role_of


@dataclass(frozen=True)
class Inner:
    """Options within options."""

    steps: int = 1
    rate: Dropout = 0.0
    workers: Annotated[int | None, Role.NOTE] = None
    shown: Annotated[Dropout, Role.NOTE] = 0.0


@dataclass(frozen=True)
class Part:
    """A part with a field of each role."""

    plain: int = 0
    shape: Annotated[int, Role.SHAPE] = 0
    end: Annotated[int | None, Role.END] = 0
    score: Annotated[Any, Role.SCORE] = 0
    note: Annotated[str, Role.NOTE] = ""
    inner: Annotated[Inner, Role.MACHINE] = Inner()


NODE = {
    "_target_": f"{__name__}.Part",
    "plain": 1, "shape": 1, "end": 1, "score": {"_target_": "of.others.Score", "n": 1},
    "note": "a", "inner": {"steps": 1, "rate": 0.1, "workers": 2, "shown": 0.1}, "of_no_field": 1,
}  # fmt: skip


def test_a_value_has_the_role_of_its_field_or_of_what_it_is_part_of():
    roles = {leaf.key.removeprefix("data."): leaf.role.name for leaf in leaves(NODE, "data")}
    assert roles == {
        "_target_": "STEP", "plain": "STEP", "shape": "SHAPE", "end": "END",
        "score._target_": "SCORE", "score.n": "SCORE", "note": "NOTE", "inner.steps": "MACHINE",
        "inner.rate": "STEP", "inner.workers": "NOTE",
        "inner.shown": "NOTE", "of_no_field": "STEP",
    }  # fmt: skip


@pytest.mark.parametrize("role", Role)
def test_runs_differ_by_the_roles_that_are_looked_at(role):
    other = {**NODE, "plain": 2, "shape": 2, "end": 2, "note": "b"}
    named = {"STEP": "plain=1", "SHAPE": "shape=1", "END": "end=1", "NOTE": "note=a"}
    expected = [f"data.{named[role.name]}"] if role.name in named else []
    assert differences({"data": NODE}, {"data": other}, {role}) == expected


def test_keys_on_one_side_alone_differ_from_a_value_on_the_other():
    theirs, ours = {"data": {"head": {"words": 2}}}, {"data": {"head": None}}
    assert differences(theirs, ours, {Role.STEP}) == ["data.head={...}"]
    assert differences(ours, theirs, {Role.STEP}) == ["data.head=null"]
    assert differences({"data": {}}, ours, {Role.STEP}) == []  # of an earlier version


def test_classes_of_others_are_not_imported():
    node = {"_target_": "antigravity.Fly", "high": 1}
    assert [leaf.role for leaf in leaves(node, "data")] == [Role.STEP] * 2


def test_every_field_of_a_training_that_no_step_depends_on_says_so():
    free = {name for name in parameters(TrainingOptions) if role_of(name) is Role.NOTE}
    assert free == {
        "run_dir", "logger", "name", "resume", "trust", "find_lr", "cache_dir", "choices",
        "overrides", "sweep",
    }  # fmt: skip
