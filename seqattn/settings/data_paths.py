"""Paths of a bundle's data, which are kept in its run's directory and not in the bundle."""

from pathlib import Path
from typing import Any

from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.settings.nodes import TARGET, Node

MISSING = "???"
"""Placeholder for a path that the user must give; Hydra reports it as missing."""


def without_paths(data: Node) -> Node:
    """Return a data node without `root`, `files` and absolute paths."""
    if not isinstance(data, dict):
        return data
    return {key: _hidden(key, value) for key, value in data.items()}


def with_paths(data: Node, bundle: Path) -> Node:
    """Return a data node with the paths that the bundle's run recorded, if any.

    Args:
        bundle: its directory, `RUN/model`; only paths are read from `RUN/config.yaml`.
    """
    try:
        run = read_yaml(bundle.parent / "config.yaml")
    except UserError:
        return data
    return _with_paths_of(data, run.get("data") if isinstance(run, dict) else None)


def _with_paths_of(data: Node, saved: Node) -> Node:
    if not isinstance(saved, dict) or _class_name(saved) != _class_name(data):
        return data
    return {key: _path_of_run(key, value, saved.get(key)) for key, value in data.items()}


def _class_name(node: Node) -> str:
    """Return the name of a node's class, which stays when the class moves."""
    return str(node.get(TARGET)).rpartition(".")[2]


def _hidden(key: str, value: Node) -> Node:
    if key == "alignments":  # specific to one split and one subcommand
        return None
    if key == "files" and isinstance(value, dict):
        return dict.fromkeys(value)
    if key == "sources" and isinstance(value, dict):
        return {name: without_paths(source) for name, source in value.items()}
    is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
    is_path = isinstance(value, str) and (key == "root" or value[:1] in ("/", "~"))
    return MISSING if is_path or (key == "root" and is_list) else value


def _path_of_run(key: str, value: Node, saved: Any) -> Node:
    if key == "sources" and isinstance(value, dict) and isinstance(saved, dict):
        return {name: _with_paths_of(one, saved.get(name)) for name, one in value.items()}
    names = saved.values() if isinstance(saved, dict) else [saved]
    flat = [name for one in names for name in (one if isinstance(one, list) else [one])]
    if any(name is not None and (not isinstance(name, str) or "${" in name) for name in flat):
        return value
    if value == MISSING and isinstance(saved, list):
        return saved
    hidden = value == MISSING or (key == "files" and value == dict.fromkeys(value or ()))
    return saved if hidden and type(saved) is type(value) else value
