"""Roles: what a field declares is what resuming and comparing make of it."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from seqattn.checking import Dropout, parameters
from seqattn.roles import Role
from seqattn.training.setting_roles import differences, leaves, role_of
from seqattn.training.train import Training


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
    keys = {"STEP": "plain", "SHAPE": "shape", "END": "end", "NOTE": "note"}
    key = keys.get(role.name)
    expected = tuple(f"data.{key}={node[key]}" for node in (NODE, other)) if key else ("", "")
    assert differences({"data": NODE}, {"data": other}, {role}) == expected


def test_keys_on_one_side_alone_differ_from_a_value_on_the_other():
    theirs, ours = {"data": {"head": {"words": 2}}}, {"data": {"head": None}}
    sides = ("data.head={...}", "data.head=null")
    assert differences(theirs, ours, {Role.STEP}) == sides
    assert differences(ours, theirs, {Role.STEP}) == sides[::-1]
    assert differences({"data": {}}, ours, {Role.STEP}) == ("", "")  # of an earlier version


def chosen(group, choice, **node):
    return {group.rpartition("@")[2]: node or None, "choices": {group: choice} if choice else {}}


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (
            chosen("attention", "mha", num_heads=4, num_kv_heads=4),
            chosen("attention", "gqa", num_heads=2, num_kv_heads=2),
            ("attention=mha", "attention=gqa"),
        ),
        (
            chosen("attention", "mha", num_heads=4, num_kv_heads=4),
            chosen("attention", "mha", num_heads=2, num_kv_heads=2),
            (
                "attention.num_heads=4 attention.num_kv_heads=4",
                "attention.num_heads=2 attention.num_kv_heads=2",
            ),
        ),
        (
            chosen("attention@cross_attention", None),
            chosen("attention@cross_attention", "mqa", _target_="x.MultiHeadAttention"),
            ("attention@cross_attention=null", "attention@cross_attention=mqa"),
        ),
        (  # built from Python, without choices
            chosen("schedule", None, _target_="x.linear", floor=0.1),
            chosen("schedule", "cosine", _target_="x.cosine", floor=0.2),
            ("schedule._target_=linear", "schedule._target_=cosine"),
        ),
        (  # a class in the same choice
            chosen("attention", "mha", kernel={"_target_": "x.Softmax"}),
            chosen("attention", "mha", kernel={"_target_": "x.Entmax", "alpha": 1.5}),
            ("attention.kernel._target_=Softmax", "attention.kernel._target_=Entmax"),
        ),
        (  # choices of the machine may differ, the key may not
            chosen("trainer", "gpu", accelerator="gpu", accumulate_grad_batches=1),
            chosen("trainer", "cpu", accelerator="cpu", accumulate_grad_batches=2),
            ("trainer.accumulate_grad_batches=1", "trainer.accumulate_grad_batches=2"),
        ),
        (  # names alone are no difference
            chosen("attention", "mqa", num_heads=4, num_kv_heads=1),
            chosen("attention", "mine", num_heads=4, num_kv_heads=1),
            ("", ""),
        ),
        (  # settings of a later version
            chosen("task", "translation", r_drop=0.0),
            chosen("task", "translation", r_drop=0.0, alignment={"_target_": "x.A", "head": 0}),
            ("", ""),
        ),
        (  # a list of another length
            chosen("callbacks", None, ema=[{"_target_": "x.A"}]),
            chosen("callbacks", None, ema=[{"_target_": "x.A"}, {"_target_": "x.B"}]),
            ("callbacks.ema[1]._target_=null", "callbacks.ema[1]._target_=B"),
        ),
    ],
)
def test_differences_name_choices_or_the_keys_of_one_choice(theirs, ours, expected):
    assert differences(theirs, ours, {Role.STEP, Role.SHAPE}) == expected
    assert differences(ours, theirs, {Role.STEP, Role.SHAPE}) == expected[::-1]


def test_classes_of_others_are_not_imported():
    node = {"_target_": "antigravity.Fly", "high": 1}
    assert [leaf.role for leaf in leaves(node, "data")] == [Role.STEP] * 2


def test_every_field_of_a_training_that_no_step_depends_on_says_so():
    free = {name for name in parameters(Training) if role_of(name) is Role.NOTE}
    assert free == {
        "run_dir", "logger", "name", "resume", "trust", "find_lr", "cache_dir", "choices",
        "overrides", "sweep", "watch",
    }  # fmt: skip
