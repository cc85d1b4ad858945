"""Configuration nodes to objects and back."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol

import pytest
from annotated_types import Ge

from seqattn.checking import Dropout, Width
from seqattn.errors import UserError
from seqattn.settings.nodes import build

HERE = __name__


class Part:
    def __init__(self, size: Width = 3) -> None:
        self.size = size


class Maker(Protocol):
    def __call__(self, dim: int) -> "Layer": ...


class Layer:
    def __init__(self, dim: int, part: Part, scale: float = 1.0, tag: str | None = None) -> None:
        self.dim, self.part, self.scale, self.tag = dim, part, scale, tag


@dataclass(frozen=True)
class Shape:
    dim: Annotated[int, Ge(1)]
    make: Maker | None = None
    dropout: Dropout = 0.1
    sizes: list[int] | None = None

    def __post_init__(self) -> None:
        if self.dim == 13:
            raise UserError("dim must not be 13")


def anything(**options: object) -> dict[str, object]:
    return options


def node(name, **more):
    return {"_target_": f"{HERE}.{name}", **more}


def test_scalars_lists_and_dicts_stay_what_they_are():
    plain = {"a": [1, 2.5, None, "${b}"], "b": {"c": True}}
    assert build(plain) == plain


def test_a_target_is_called_with_its_built_arguments():
    layer = build(node("Layer", dim=2, part=node("Part", size=7)))
    assert (layer.dim, layer.part.size, layer.scale) == (2, 7, 1.0)
    assert build(node("anything", a=[node("Part", size=2)]))["a"][0].size == 2


def test_a_partial_makes_what_is_nested_in_it_anew_at_each_call():
    make = build(node("Layer", _partial_=True, part=node("Part", size=7)))
    assert isinstance(make, partial)
    one, other = make(dim=1), make(2)
    assert one.part is not other.part
    assert (one.part.size, other.part.size, other.dim) == (7, 7, 2)
    assert make(dim=1, scale=4.0).scale == 4.0


def test_what_a_partial_is_called_with_comes_before_what_its_node_says():
    make = build(node("Layer", _partial_=True, part=node("Part", size=7), scale=2.0))
    assert make(dim=1).scale == 2.0
    assert make(dim=1, scale=4.0, part=Part(5)).scale == 4.0
    assert make(dim=1, part=Part(5)).part.size == 5


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (node("Shape", dmi=2), "unknown key model.dmi; did you mean model.dim?"),
        (node("Shape", dim=2, x=1), "unknown key model.x; choose from dim, make, "),
        (node("Shape", dim=2, _convert_="all"), "unknown key model._convert_; choose from"),
        (node("Shape"), "missing required key model.dim"),
        (node("Shape", dim=0), "model.dim must be a whole number of at least 1, got 0"),
        (node("Shape", _partial_=True, dim=0), "model.dim must be a whole number of at least 1"),
        (node("Shape", dim="2"), "model.dim must be a whole number of at least 1, got '2'"),
        (node("Shape", dim={"a": 1}), "model.dim must be a whole number of at least 1, got a dict"),
        (node("Shape", dim=node("Part")), "model.dim must be a whole number of at least 1, got a "),
        (
            node("Shape", dim=2, make=3),
            "model.make must be null or a config node of a matching class, got 3",
        ),
        (
            node("Shape", dim=2, make="x"),
            "model.make must be null or a config node of a matching class, got",
        ),
        (
            node("Shape", dim=2, make={"a": 1}),
            "model.make must be null or a config node of a matching class",
        ),
        (
            node("Shape", dim=2, sizes=[1, "a"]),
            "model.sizes must be a list of whole numbers or nul",
        ),
        (node("Shape", dim=2, dropout=float("nan")), "model.dropout must be a number of at least"),
        (node("Shape", dim=13), "dim must not be 13"),
        (
            node("Shape", dim=1, make=node("Layer", _partial_=True, part=node("Part", size=0))),
            "model.make.part.size must be a whole number from 1 to 65,536, got 0",
        ),
        (
            node("Layer", dim=1, part=None),
            "model.part must be a config node of a matching class, got N",
        ),
        (node("Layer", dim=1, part=node("Shape", dim=1)), "model.part must be a config node"),
        ({"a": [node("Part", size=0)]}, "model.a[0].size must be a whole number"),
        ({"_target_": None}, "model._target_ must name a class as package.Class, got None"),
        ({"_target_": 5}, "model._target_ must name a class as package.Class, got 5"),
        ({"_target_": "Shape"}, "model._target_ must name a class as package.Class, got 'Shape'"),
        ({"_target_": "a..b"}, "model._target_ must name a class as package.Class, got 'a..b'"),
        (
            {"_target_": "no_such.Thing"},
            "cannot import model._target_=no_such.Thing: No modul",
        ),
        (
            {"_target_": f"{HERE}.Nothing"},
            f"cannot import model._target_={HERE}.Nothing: {HERE} has",
        ),
        (
            {"_target_": f"{HERE}.HERE"},
            f"model._target_={HERE}.HERE must name a class or a function",
        ),
        ({"_target_": "builtins.dict"}, "model._target_=builtins.dict has no readable signature"),
        (node("Shape", _partial_=1, dim=2), "model._partial_ must be true or false, got 1"),
        (
            node("Part", size="x" * 10_000),
            "model.size must be a whole number from 1 to 65,536, got",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line_that_names_the_key(given, line):
    with pytest.raises(UserError) as error:
        build(given, "model")
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_broken_import_inside_a_module_says_what_is_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_part.py").write_text("import not_installed_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"broken_part\.A: No module named .not_"):
        build({"_target_": "broken_part.A"}, "attention")


def test_a_package_of_another_folder_is_refused_with_what_to_do():
    line = "No module named 'mine'; run in the folder that holds mine, or add that folder to PYTHO"
    with pytest.raises(UserError, match=line):
        build({"_target_": "mine.A"}, "attention")
