"""Types allowed at each place of a configuration, read from the shipped choices in `conf/`.

A new kernel needs one file and one YAML, of which only `_target_` is read here.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from seqattn.errors import UserError
from seqattn.inputs import LOADER
from seqattn.installation import shipped
from seqattn.settings.nodes import PARTIAL, TARGET, Node, import_path, missing_extra, replace_marks

SLOTS = ("encoder", "decoder", "cross")
SLOT_NODES = tuple(f"{slot}_attention" for slot in SLOTS)
"""Slots of attention, and the configuration nodes that fill them."""
_ANY = "*"
"""Wildcard in a place, for any name chosen by a user."""


@cache
def types() -> dict[str, dict[str, dict[str, Node]]]:
    """Return the types allowed at each place, such as `attention.kernel`, by name.

    Each is given by the special keys of its nodes: `_target_`, and `_partial_` of a factory.
    """
    allowed: dict[str, dict[str, dict[str, Node]]] = {}

    def note(node: Node, key_path: str) -> dict[str, Node]:
        if isinstance(node, dict) and TARGET in node:
            marks = {key: node[key] for key in (TARGET, PARTIAL) if key in node}
            allowed.setdefault(key_path, {})[node[TARGET].rpartition(".")[2]] = marks
        return {}

    for file in sorted(shipped("conf").glob("*/*.yaml")):
        text = file.read_text(encoding="utf-8")
        node, package = yaml.load(text, LOADER), re.match(r"# @package (\S+)", text)
        if package is None:
            replace_marks(node, file.parent.name, note)
        elif package[1] != "_global_":  # that package sets values of other groups
            for part in node.values():
                replace_marks(part, f"{package[1]}.{_ANY}", note)
    return allowed


def types_at(key_path: str) -> dict[str, dict[str, Node]]:
    """Return the types allowed at a place, by name."""
    group, dot, nested = key_path.partition(".")
    group = "attention" if group.endswith("_attention") else group
    allowed, key_path = types(), f"{group}{dot}{nested}"
    key_path = re.sub(r"^data\.sources\.[^.]+", "data", key_path)  # of a mixture
    return allowed.get(key_path) or allowed.get(f"{key_path.rpartition('.')[0]}.{_ANY}") or {}


def choices(group: str) -> dict[str, Node]:
    """Return the nodes of a group's choices by name, with `${.key}` resolved.

    Choices of extras that are not installed are left out.
    """
    nodes = {}
    for file in sorted((shipped("conf") / group).glob("[!_]*.yaml")):
        node = yaml.load(file.read_text(encoding="utf-8"), LOADER)
        if missing_extra(node.get(TARGET) or ""):
            continue
        beside = {f"${{.{key}}}": value for key, value in node.items()}
        nodes[file.stem] = {
            key: beside.get(value, value) if isinstance(value, str) else value
            for key, value in node.items()
            if key != "defaults"
        }
    return nodes


def choice_of_word(group: str, word: str | int) -> dict[str, Node] | None:
    """Return the node of a group for a word that is none of its choices, None for none.

    A group with a file `_KEY.yaml` reads it as the KEY of that choice, such as a language.
    """
    for file in sorted((shipped("conf") / group).glob("_*.yaml")):
        node, key = yaml.load(file.read_text(encoding="utf-8"), LOADER), file.stem[1:]
        if TARGET in node and key in node and not missing_extra(node[TARGET]):
            return {**node, key: word}
    return None


def check_fit(task: Any, chosen: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Raise UserError for choices that do not fit the task, with those that do.

    Args:
        task: the task or its class.
        chosen: by group, the object or its class.
        names: names of the choices by group.
    """
    fitting = {}
    for group, attribute, needed in (
        ("model", "output", task.output),
        ("data", "yields", task.reads),
        *([("data", "redraws", True)] if task.redraws else []),
        ("loader", "batches", task.batches),
        ("generation", "output", task.output),
    ):
        part = chosen.get(group)
        if getattr(part, attribute, needed) != needed:
            word = f"{group}={names.get(group) or type(part).__name__}"
            fitting[word] = [
                name
                for name, node in choices(group).items()
                if TARGET in node and getattr(import_path(node[TARGET]), attribute, None) == needed
            ]
    if not fitting:
        return
    *others, last = fitting
    words = f"{', '.join(others)} or {last}" if others else last
    options = [
        f"{word.partition('=')[0]}={'|'.join(some)}" if others else ", ".join(some)
        for word, some in fitting.items()
    ]
    raise UserError(
        f"task={names.get('task') or task.name} does not support {words}; choose from "
        f"{' '.join(options)}"
    )


def with_new_keys(group: str, node: Node) -> Node:
    """Add keys that newer versions of a choice have to a bundle's search or data node."""
    nodes = choices(group).values() if group in ("generation", "data") else ()
    matches = [choice for choice in nodes if choice.get(TARGET) == node.get(TARGET)]
    return {**(matches[0] if matches else {}), **node}


def with_rule_before(data: Node) -> Node:
    """Return a stored data node with the rule that held out its rows before it was a setting."""
    holds_out = isinstance(data, dict) and (data.get("hold_out") or data.get("hold_out_test"))
    takes_rule = holds_out and "hold_out_by" in with_new_keys("data", data)
    return {"hold_out_by": "pair", **data} if takes_rule else data
