"""Overrides saved by a run, which may be untrusted: read as data, never as code."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from seqattn.errors import UserError
from seqattn.inputs import read_yaml
from seqattn.installation import shipped
from seqattn.settings.choices import choices, types_at
from seqattn.settings.nodes import PARTIAL, TARGET, Node, replace_marks
from seqattn.storage import user_path

_OTHER_KEYS = ("callbacks", "generation", "logger", "processor", "schedule")
"""Groups whose choices differ in their keys, and may change when a run is resumed."""
_NOT_READ = ("resume", "run_dir", "trust", "find_lr")
"""Keys allowed only on the command line."""
_RENAMED_KEY = ("task.validation.attention_health", "watch.health")
"""A key of earlier versions, and its present name."""
_TYPE = "; add it to the command if you trust the run's author"
_NAME = re.compile(r"\w[\w.-]*")
OF_MIXTURE = "data@data.sources."
"""Beginning of the groups of the sources of a mixture."""
_KEY = re.compile(r"[a-zA-Z]\w*(\.(\w*[a-zA-Z0-9]|_target_|_partial_))*")
_OF_A_KEY = re.compile(r"\$\{\.*\w[\w.]*\}")
"""Pattern of an interpolation of another key, without a resolver."""


def overrides_of(run: str, command: Sequence[str], trust: Collection[str]) -> list[str]:
    """Return the overrides of a run, except those that are replaced.

    Args:
        run: directory of the run.
        command: overrides of the current command.
        trust: packages whose classes they may name.

    Raises:
        UserError: if there is no such run, or one of its overrides could run code.
    """
    file = user_path(run) / "overrides.yaml"
    overrides = _read(file, run)
    if not isinstance(overrides, list) or not all(
        isinstance(override, str) for override in overrides
    ):
        raise UserError(f"cannot read {file}; start a new run")
    overrides = [override.replace(*_RENAMED_KEY) for override in overrides]
    replaced = {_bare(override) for override in command}
    saved = [
        override
        for override in overrides
        if _bare(override) not in replaced and not _outdated(override, command)
    ]
    for override in saved:
        reason = _fault(override, trust)
        if reason is not None:
            raise UserError(f"{file} contains {override!r}, {reason}")
    return [override for override in saved if _bare(override) not in _NOT_READ]


def nodes_of(run: str, names: Collection[str], trust: Collection[str]) -> dict[str, Node]:
    """Return nodes of a run's configuration, which may only name trusted classes.

    Args:
        run: directory of the run.
        names: names of the nodes; the result also has the names of their choices.
        trust: packages, besides seqattn, whose classes they may name.

    Raises:
        UserError: if there is no such run, or it names other classes.
    """
    file = user_path(run) / "config.yaml"
    config = _read(file, run)
    if not isinstance(config, dict) or not isinstance(config.get("choices") or {}, dict):
        raise UserError(f"cannot read {file}; start a new run")

    def marks(node: Node, key_path: str) -> dict[str, Node]:
        if isinstance(node, str) and "${" in node:
            raise UserError(f"{file}: {key_path} must be plain text, got {node!r}")
        if not isinstance(node, dict) or TARGET not in node:
            return {}
        if not _may_be(node[TARGET], key_path, trust):
            raise UserError(
                f"{file}: {key_path} names {node[TARGET]!r}, {_untrusted(node[TARGET])}"
            )
        special = {key: node[key] for key in (TARGET, PARTIAL) if key in node}
        name = node[TARGET].rpartition(".")[2]  # the class may have moved
        return (
            types_at(key_path).get(name, special)
            if node[TARGET].startswith("seqattn.")
            else special
        )

    selected = {name: config[name] for name in ("choices", *names) if name in config}
    return {name: replace_marks(node, name, marks) for name, node in selected.items()}


def _read(file: Any, run: str) -> Any:
    if not file.is_file():
        raise UserError(f"resume={run} is not a run: {file} does not exist")
    try:
        return read_yaml(file)
    except UserError as error:
        raise UserError(f"cannot read {file}; start a new run") from error


def _fault(text: str, trust: Collection[str]) -> str | None:
    """Return why an override from a run's file is rejected; None if it is accepted."""
    try:
        override = parsed(text)
        if override.is_sweep_override():
            return f"which has several values{_TYPE}"
        key, value = override.get_key_element().lstrip("+~"), override.value()
    except HydraException:
        return f"which cannot be parsed{_TYPE}"
    if _bare(text) == "trust":
        return f"which a run cannot set{_TYPE}"
    groups, keys = _groups_and_keys()
    if key in groups or key.startswith(OF_MIXTURE):
        names = value if isinstance(value, list) else [value]
        plain = all(name is None or _NAME.fullmatch(str(name)) for name in names)
        return None if plain else f"which is not a choice name{_TYPE}"
    if not _KEY.fullmatch(key) or key.partition(".")[0] not in keys:
        return f"which is not a training key{_TYPE}"
    return next(_faults(override, key, value, trust), None)


def _faults(override: Override, key: str, value: Any, trust: Collection[str]) -> Iterator[str]:
    """Yield what is not allowed in the value of a key and in nested values."""
    text = getattr(value, "text", value)
    if isinstance(text, str) and "${" in _OF_A_KEY.sub("", text):
        yield f"which uses a resolver{_TYPE}"
    parent, _, last = key.rpartition(".")
    if last == TARGET and not _may_be(text, parent, trust):
        yield _untrusted(text)
    if last.startswith("_") and last not in (TARGET, PARTIAL):
        yield f"which is not a training key{_TYPE}"
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _faults(override, f"{key}.{getattr(name, 'text', name)}", part, trust)
    elif isinstance(value, list):
        for part in value:
            yield from _faults(override, f"{key}.0", part, trust)


def _may_be(target: Any, key_path: str, trust: Collection[str]) -> bool:
    """Return True if a class is allowed at a place: one of its types, or of a trusted package."""
    if not isinstance(target, str) or "${" in target:
        return False
    allowed = target.startswith("seqattn.") and target.rpartition(".")[2] in types_at(key_path)
    return allowed or any(f"{target}.".startswith(f"{package}.") for package in trust)


def _untrusted(target: Any) -> str:
    package = str(target).partition(".")[0]
    return f"which is not allowed there; add trust=[{package}] if you trust its author"


def _bare(override: str) -> str:
    """Return the key of an override, without prefixes such as "+"."""
    return override.partition("=")[0].lstrip("+~")


@cache
def _groups_and_keys() -> tuple[set[str], set[str]]:
    """Return the groups of a training run, with their slots, and its keys."""
    text = (shipped("conf") / "train.yaml").read_text(encoding="utf-8")
    document: Mapping[str, Any] = yaml.safe_load(text)
    entries = [
        group.removeprefix("optional ")
        for entry in document["defaults"]
        if isinstance(entry, dict)
        for group in entry
    ]
    groups = {group for group in entries if not group.startswith("override ")}
    slots = {group.rpartition("@")[2] for group in groups}
    return groups, slots | document.keys() - {"defaults", "hydra", TARGET}


def _outdated(override: str, command: Sequence[str]) -> bool:
    """Return True if `command` replaces the choice that has its key by one without that key."""
    key = re.sub(r"^generation\.processors\b", "processor", _bare(override))
    group, *path = key.split(".")
    names = value_of(command, group) if group in _OTHER_KEYS and path else None
    names = [names] if isinstance(names, str) else names
    nodes = choices(group) if isinstance(names, list) else {}
    if not isinstance(names, list) or not nodes.keys() >= set(map(str, names)):
        return False  # the keys of a user's choices are unknown
    node: Any = {name: part for choice in names for name, part in nodes[str(choice)].items()}
    for word in path[:-1] if override.startswith("+") else path:
        if not isinstance(node, dict):
            return False
        if word not in node:
            return True
        node = node[word]
    return False


def value_of(overrides: Sequence[str], key: str) -> Any:
    """Return the last value given for a key, or None."""
    matches = [override for override in overrides if override.partition("=")[0] == key]
    return parsed(matches[-1]).value() if matches else None


def texts_of(overrides: Sequence[str], key: str) -> list[str]:
    """Return the items of the last list given for a key as texts, without a list none."""
    value = value_of(overrides, key)
    return (
        [str(getattr(element, "text", element)) for element in value]
        if isinstance(value, list)
        else []
    )


def parsed(override: str) -> Override:
    """Parse an override by Hydra's grammar.

    Raises:
        OverrideParseException: if it cannot be parsed.
    """
    [result] = OverridesParser.create().parse_overrides([override])
    return result
