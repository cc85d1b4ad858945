"""Plain settings of runs: their values with roles, and differences of two runs."""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from seqattn.checking import parameters
from seqattn.roles import Role
from seqattn.settings.choices import SLOT_NODES, types_at
from seqattn.settings.nodes import TARGET, import_path
from seqattn.training.settings import TrainingSettings


class Leaf(NamedTuple):
    """A value in a run's settings."""

    key: str  # with dots, such as model.dim
    value: Any
    role: Role


def leaves(node: Any, path: str) -> Iterator[Leaf]:
    """Return each value of a setting with its key and its role.

    Classes are identified by name, which is kept when a class moves. A list of nodes has a key for
    each of its values; a list of plain values is one value.

    Args:
        node: plain value of a training key; only classes of shipped choices are imported.
        place: the key.
    """
    hint = _training().get(path)
    yield from _leaves(node, path, role_of(path), _options(hint))


def role_of(name: str) -> Role:
    """Return the role of a training key, STEP for other names."""
    return role_in(_training().get(name), Role.STEP)


def _training() -> Mapping[str, Any]:
    """Return the types of the keys of a training run."""
    return parameters(TrainingSettings)


def _leaves(node: Any, path: str, role: Role, options: Any) -> Iterator[Leaf]:
    if isinstance(node, dict) and path != "lr_factors":  # whose keys are the user's
        hints = _hints(node, path, options)
        for key, value in node.items():
            own = str(value).rpartition(".")[2] if key == TARGET else value
            hint = hints.get(key)
            yield from _leaves(own, f"{path}.{key}", role_in(hint, role), _options(hint))
    elif isinstance(node, list) and any(isinstance(value, dict | list) for value in node):
        for number, value in enumerate(node):
            yield from _leaves(value, f"{path}[{number}]", role, None)
    else:
        yield Leaf(path, node, role)


def _hints(node: Mapping[str, Any], path: str, options: Any) -> Mapping[str, Any]:
    """Return the types of a node's keys, from its class if known, else from its place."""
    module, _, name = str(node.get(TARGET)).rpartition(".")
    marks = types_at(path.partition("[")[0]).get(name)
    if marks is not None and marks[TARGET].startswith("seqattn."):
        return parameters(import_path(marks[TARGET]))
    of_others = getattr(sys.modules.get(module), name, options)
    return parameters(of_others) if callable(of_others) else {}


def role_in(hint: Any, otherwise: Role) -> Role:
    """Return the role that a type declares."""
    roles = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Role)]
    return roles[-1] if roles else otherwise


def _options(hint: Any) -> Any:
    """Return the dataclass of options in a type; None without one."""
    parts = [get_args(hint)[0]] if get_origin(hint) is Annotated else [hint]
    parts = [part for one in parts for part in (get_args(one) or (one,))]
    return next((part for part in parts if is_dataclass(part)), None)


def differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], roles: Collection[Role]
) -> tuple[str, str]:
    """Return the settings that differ between two runs, as overrides of each; empty if none do.

    If the choices of a group differ, only they are named; else the keys that both have.

    Args:
        theirs, ours: plain settings, with the names of their `choices`.
        roles: roles of the settings to compare.
    """
    overrides = []
    for name in ours:
        there, here = (_values(config.get(name), name, roles) for config in (theirs, ours))
        keys = sorted(there.keys() | here.keys())
        written = {key: (_written(there, key), _written(here, key)) for key in keys}
        changed = {key: pair for key, pair in written.items() if pair[0] != pair[1]}
        classes = {
            key: pair
            for key, pair in changed.items()
            if key.endswith(TARGET) and all(_knows(one, key) for one in (there, here))
        }
        # other keys follow from the class
        changed = classes or {key: pair for key, pair in changed.items() if None not in pair}
        group = f"attention@{name}" if name in SLOT_NODES else name
        choices = _choice(theirs, name, group), _choice(ours, name, group)
        if changed and role_of(name) in roles and len({None, *choices}) == 3:
            changed = {group: choices}
        for key, pair in changed.items():
            overrides.append([f"{key}={'null' if value is None else value}" for value in pair])
    return " ".join(one for one, _ in overrides), " ".join(other for _, other in overrides)


def _choice(settings: Mapping[str, Any], name: str, group: str) -> str | None:
    """Return the name of a group's choice, "null" if it is empty; None if unknown."""
    choice = (settings.get("choices") or {}).get(group)
    return choice or ("null" if settings.get(name) is None else None)


def _values(node: Any, name: str, roles: Collection[Role]) -> dict[str, Any]:
    return {leaf.key: leaf.value for leaf in leaves(node, name) if leaf.role in roles}


def _knows(values: Mapping[str, Any], key: str) -> bool:
    """Return False if an earlier version, which lacks the setting, wrote these values."""
    place = key.removesuffix(f".{TARGET}")
    return place.endswith("]") or _written(values, place) is not None


def _written(values: Mapping[str, Any], key: str) -> str | None:
    """Return a value as written in an override, "{...}" for nested keys; None without one."""
    if key not in values:
        return "{...}" if any(other.startswith(f"{key}.") for other in values) else None
    value = values[key]
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{part}' for name, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value)
