"""What belongs at each place of a configuration, read from the shipped choices in `conf/`.

A new kernel is one file and one YAML: the YAML's `_target_` is all that is asked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import yaml

from seqattn.bundle.nodes import PARTIAL, TARGET, Node
from seqattn.places import shipped

_ANY = "*"
"""In a place, any name that a user gives."""


@cache
def types() -> dict[str, dict[str, dict[str, Node]]]:
    """The types that belong at each place, such as `attention.kernel`, by their names.

    Each is what a node of it says of itself: its `_target_`, and `_partial_` of a factory.
    """
    found: dict[str, dict[str, dict[str, Node]]] = {}
    for file in sorted(shipped("conf").glob("*/*.yaml")):
        text = file.read_text(encoding="utf-8")
        package = re.match(r"# @package (\S+)", text)
        if package and package[1] == "_global_":
            continue  # an experiment: values of other groups
        place = package[1] if package else file.parent.name
        for where, node in _targets(yaml.safe_load(text), place, bool(package)):
            name = node[TARGET].rpartition(".")[2]
            marks = {key: node[key] for key in (TARGET, PARTIAL) if key in node}
            found.setdefault(where, {})[name] = marks
    return found


def types_at(place: str) -> dict[str, dict[str, Node]]:
    """The types that belong at a place, by their names."""
    group, dot, rest = place.partition(".")
    group = "attention" if group.endswith("_attention") else group
    known, place = types(), f"{group}{dot}{rest}"
    return known.get(place) or known.get(f"{place.rpartition('.')[0]}.{_ANY}") or {}


def choices(group: str) -> dict[str, Node]:
    """The nodes of a group's choices by their names, `${.key}` replaced by the key beside it."""
    found = {}
    for file in sorted((shipped("conf") / group).glob("[!_]*.yaml")):
        node = yaml.safe_load(file.read_text(encoding="utf-8"))
        beside = {f"${{.{key}}}": value for key, value in node.items()}
        found[file.stem] = {
            key: beside.get(value, value) if isinstance(value, str) else value
            for key, value in node.items()
            if key != "defaults"
        }
    return found


def _targets(node: Node, place: str, named: bool) -> Iterator[tuple[str, dict[str, Node]]]:
    """The nodes with a target at a place and below it; `named` where its keys are users' names."""
    if not isinstance(node, dict):
        return
    if TARGET in node:
        yield place, node
    for key, value in node.items():
        yield from _targets(value, f"{place}.{_ANY if named else key}", False)
