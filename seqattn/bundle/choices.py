"""What belongs at each place of a configuration, read from the shipped choices in `conf/`.

A new kernel is one file and one YAML: the YAML's `_target_` is all that is asked here.
"""

import re
from functools import cache

import yaml

from seqattn.bundle.nodes import PARTIAL, TARGET, Node, remarked
from seqattn.inputs import LOADER
from seqattn.places import shipped

SLOTS = ("encoder", "decoder", "cross")
SLOT_NODES = tuple(f"{slot}_attention" for slot in SLOTS)
"""What the slots of attention are called, and the nodes of a configuration that fill them."""
_ANY = "*"
"""In a place, any name that a user gives."""


@cache
def types() -> dict[str, dict[str, dict[str, Node]]]:
    """The types that belong at each place, such as `attention.kernel`, by their names.

    Each is what a node of it says of itself: its `_target_`, and `_partial_` of a factory.
    """
    found: dict[str, dict[str, dict[str, Node]]] = {}

    def note(node: Node, place: str) -> dict[str, Node]:
        if isinstance(node, dict) and TARGET in node:
            marks = {key: node[key] for key in (TARGET, PARTIAL) if key in node}
            found.setdefault(place, {})[node[TARGET].rpartition(".")[2]] = marks
        return {}

    for file in sorted(shipped("conf").glob("*/*.yaml")):
        text = file.read_text(encoding="utf-8")
        node, package = yaml.load(text, LOADER), re.match(r"# @package (\S+)", text)
        if package is None:
            remarked(node, file.parent.name, note)
        elif package[1] != "_global_":  # which holds values of other groups
            for part in node.values():
                remarked(part, f"{package[1]}.{_ANY}", note)
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
        node = yaml.load(file.read_text(encoding="utf-8"), LOADER)
        beside = {f"${{.{key}}}": value for key, value in node.items()}
        found[file.stem] = {
            key: beside.get(value, value) if isinstance(value, str) else value
            for key, value in node.items()
            if key != "defaults"
        }
    return found


def with_new_keys(group: str, node: Node) -> Node:
    """A bundle's search or data with the keys that its choice has got since; others as they are."""
    known = choices(group).values() if group in ("generation", "data") else ()
    same = [choice for choice in known if choice.get(TARGET) == node.get(TARGET)]
    return {**(same[0] if same else {}), **node}
