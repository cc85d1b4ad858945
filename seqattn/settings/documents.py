"""A bundle's configuration as a document: plain YAML that names choices and values.

A node has `_type_: SoftmaxKernel`, a name allowed at its place, and no Python path: so a class can
move without breaking a bundle, and a bundle can only name choices of that place. A type of a
third-party package is named by its path and must be trusted.
"""

import math
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import yaml

from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.inputs import parse_yaml
from seqattn.settings.choices import SLOT_NODES, choices, types_at, with_rule_before
from seqattn.settings.data_paths import without_paths
from seqattn.settings.nodes import (
    PARTIAL,
    TARGET,
    TYPE,
    Node,
    import_path,
    nearest,
    replace_marks,
)
from seqattn.storage import is_file, user_path

FORMAT = "seqattn bundle 2"
CONFIG, WEIGHTS, SCORES = "config.yaml", "model.safetensors", "scores.json"
"""Files of a bundle, except its vocabulary and its card."""
HUB = "hf://"
"""Prefix of the names of models on the Hugging Face Hub."""
Config = dict[str, Node]
"""Nodes of a run by name, in the form that `nodes.build` accepts."""
BUNDLE_NODES = (
    "name", "seed", "choices", "task", "data", "loader", "tokenizer", "model", "attention",
    "encoder_attention", "decoder_attention", "cross_attention", "position", "optimizer",
    "schedule", "generation", "trainer", "quantize", "imported", "alignment",
    "calibration", "text_options",
)  # fmt: skip
"""Nodes of a run's configuration that its bundle stores, to use it or to train it further."""
_OF_TRAINING = ("optimizer", "schedule")
"""Optional nodes, which are left out if they name a package that is not trusted."""


def bundle_dir(name: str | Path) -> Path:
    """Return the directory of a bundle: RUN/model for a run, else the path itself.

    A folder of Hugging Face, or a name such as "hf://ORG/MODEL", is imported into the cache.

    Raises:
        UserError: if it must be imported, and `seqattn.extras.exchange` is not installed.
    """
    path = user_path(name)
    foreign = is_file(path / "config.json") and not is_file(path / CONFIG)
    if foreign or str(name).startswith(HUB):
        importer = choices("importer").get("huggingface")
        if importer is None:
            raise UserError(f"{name} needs seqattn.extras.exchange, which is not installed")
        return cast(Path, import_path(importer[TARGET])(str(name)))
    of_run = path / "model"
    return of_run if is_file(of_run / WEIGHTS) and not is_file(path / WEIGHTS) else path


def dump(config: Mapping[str, Node]) -> str:
    """Return the document of a run's configuration.

    Args:
        config: nodes by the names of `BUNDLE_NODES`; others are left out.
    """
    nodes = {name: config[name] for name in BUNDLE_NODES if config.get(name) is not None}
    if "data" in nodes:
        nodes["data"] = without_paths(nodes["data"])
    if "tokenizer" in nodes:  # which may be read from files
        nodes["tokenizer"] = without_paths(nodes["tokenizer"])
    parts = {name: replace_marks(node, name, _type) for name, node in nodes.items()}
    return yaml.safe_dump({"format": FORMAT, **parts}, sort_keys=False)


def read(text: str, trust: Collection[str] = ()) -> Config:
    """Return the configuration of a document, without importing what it names.

    Args:
        trust: third-party packages whose types it may name.

    Raises:
        UserError: if it is not such a document, or names a type that is not allowed at its place.
    """
    document = parse_yaml(text)
    form = document.pop("format", None) if isinstance(document, dict) else None
    if form != FORMAT:
        hints = {
            "seqattn run": "; a run's bundle is RUN/model, written when training ends",
            "seqattn bundle": "; load it with the version that its README.md names, or retrain",
        }
        hint = hints.get(str(form).rpartition(" ")[0], "")
        raise UserError(f"format must be {FORMAT!r}, got {shown(form)}{hint}")
    _check_plain(document, "")
    for name in document:
        if name not in BUNDLE_NODES:
            raise UserError(f"unknown key {shown(name)}{nearest(str(name), BUNDLE_NODES)}")
    names = document.get("choices", {})
    if not isinstance(names, dict) or not all(isinstance(n, str) for n in names.values()):
        raise UserError("choices must map each group to a name")
    if document.get("quantize") not in (None, "int8"):
        raise UserError(f"quantize must be int8 or null, got {shown(document['quantize'])}")
    for name, node in document.items():
        if isinstance(node, list) and name not in ("attention", *SLOT_NODES):
            raise UserError(f"{name} must be a single choice or value, got {shown(node)}")
    marks, config = partial(_target, trust=trust), {}
    for name, node in document.items():
        try:
            config[name] = replace_marks(node, name, marks)
        except _Untrusted:
            if name not in _OF_TRAINING:
                raise
    if "data" in config:
        config["data"] = with_rule_before(config["data"])
    return config


class _Untrusted(UserError):
    """A part of a package that is not trusted."""


def _check_plain(node: Any, key_path: str) -> None:
    """Raise UserError for keys that are not strings, non-scalar values and interpolations."""
    if isinstance(node, str) and "${" in node:
        raise UserError(f"{key_path} must be plain text, got {shown(node)}")
    if isinstance(node, float) and not math.isfinite(node):
        raise UserError(f"{key_path} must be a finite number, got {node}")
    if node is not None and not isinstance(node, bool | int | float | str | list | dict):
        raise UserError(
            f"{key_path} must be text, a number, true, false or null, got {shown(node)}"
        )
    for key in node if isinstance(node, dict) else ():
        if not isinstance(key, str) or not key.isprintable():
            raise UserError(f"{key_path or 'the file'} has an invalid key {shown(key)}")


def _type(node: Node, key_path: str) -> dict[str, Node]:
    """Return the special keys that name a node's type in a document."""
    if not isinstance(node, dict) or TARGET not in node:
        return {}
    path = str(node[TARGET])
    name = path.rpartition(".")[2]
    if path.startswith("seqattn.") and name in types_at(key_path):
        return {TYPE: name}
    return {TYPE: path, PARTIAL: node.get(PARTIAL, False)}


def _target(node: Node, key_path: str, trust: Collection[str]) -> dict[str, Node]:
    """Return the special keys that build a document's node, if its type is allowed at its place."""
    _check_plain(node, key_path)
    allowed = types_at(key_path)
    marks = [key for key in node if key.startswith("_")] if isinstance(node, dict) else []
    if allowed and node is not None and TYPE not in marks:
        raise UserError(f"missing required key {key_path}.{TYPE}; choose from {', '.join(allowed)}")
    name: Any = node[TYPE] if TYPE in marks else None
    foreign = isinstance(name, str) and "." in name
    for key in marks:
        _check_plain(node[key], f"{key_path}.{key}")
        if key != TYPE and not (key == PARTIAL and foreign):
            raise UserError(f"unknown key {key_path}.{key}")
    if TYPE not in marks:
        return {}
    if foreign:
        if not any(f"{name}.".startswith(f"{package}.") for package in trust):
            raise _Untrusted(
                f"{key_path} names {name}, which is not part of seqattn; load it with "
                f"trust=[{name.partition('.')[0]}] if you trust its author"
            )
        return {TARGET: name, PARTIAL: node.get(PARTIAL, False)}
    if not isinstance(name, str) or name not in allowed:
        raise UserError(f"{key_path} does not support {shown(name)}{nearest(str(name), allowed)}")
    return allowed[name]
