"""Building objects from configuration nodes, which are plain dicts and lists.

A node with `_target_: package.Class` describes an object of that class, and its other keys are the
constructor's arguments; with `_partial_: true` it describes a factory, which is called with the
remaining arguments.
"""

import difflib
import inspect
import pydoc
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

from seqattn.checking import check, keys_under, shown
from seqattn.errors import UserError
from seqattn.installation import CONF

TARGET, PARTIAL, TYPE = "_target_", "_partial_", "_type_"
Node = Any
"""A value of YAML: a scalar, a list of nodes, or a dict from texts to nodes."""


def build(node: Node, where: str = "", settings: Mapping[str, Node] | None = None) -> Any:
    """Build the object that a node describes.

    Args:
        node: scalars, lists and dicts, interpolations resolved.
        where: the key that holds it, with dots, for messages.
        settings: plain keys to pass to a parameter `settings`, if there is one.

    Returns:
        The object of a `_target_`, a `functools.partial` of it where `_partial_` is true, and the
        same kind of value for everything else. A class gets the nodes that it lists in
        `built_later`. A partial rebuilds the objects nested in it at
        each call, so that layers share nothing.

    Raises:
        UserError: for an unknown or missing key, a value that its parameter does not accept, or a
            `_target_` that does not exist; the message names the key.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        return map_values(build, node, where)
    target = import_path(node[TARGET], where)
    is_factory = node.get(PARTIAL, False)
    if not isinstance(is_factory, bool):
        raise UserError(f"{_join(where, PARTIAL)} must be true or false, got {shown(is_factory)}")
    arguments = {name: part for name, part in node.items() if name not in (TARGET, PARTIAL)}
    try:
        accepted = inspect.signature(target).parameters
    except ValueError as error:
        raise UserError(
            f"{_join(where, TARGET)}={node[TARGET]} has no readable signature"
        ) from error
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    for name in arguments:
        if name not in accepted and not takes_all:
            keys = [  # a factory gets the other arguments when it is called
                key
                for key, parameter in accepted.items()
                if not is_factory or key in arguments or parameter.default is not parameter.empty
            ]
            raise UserError(f"unknown key {_join(where, name)}{nearest(name, keys, where)}")
    later = getattr(target, "built_later", ())
    ready = {name: part for name, part in arguments.items() if name not in later}
    kwargs = arguments | map_values(build, ready, where)
    with keys_under(where):
        check(target, kwargs)
    if settings is not None and "settings" in accepted:
        kwargs["settings"] = settings
    if not is_factory:
        return _call(target, (), kwargs, where)
    factory = _Factory(target, **kwargs)
    factory.nested, factory.where = arguments, where
    return factory


def build_subcommand(path: str, settings: Mapping[str, Node]) -> Any:
    """Build a subcommand, and store the plain settings in its field `settings` if it has one.

    A class with the field `options` gets there the nodes that it has no field for, by their keys.

    Args:
        path: dotted path of its class.
        settings: its settings by key.

    Raises:
        UserError: as `build`.
    """
    plain = {name: node for name, node in settings.items() if name != TARGET}
    fields, kwargs = inspect.signature(import_path(path)).parameters, dict(plain)
    if "options" in fields:
        kwargs["options"] = {key: kwargs.pop(key) for key in plain if key not in fields}
    return build({**kwargs, TARGET: path}, settings=plain)


class _Factory(partial[Any]):
    """A partial that rebuilds the objects nested in it at each call."""

    nested: dict[str, Node]
    where: str

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = {**map_values(build, self.nested, self.where), **kwargs}
        return _call(self.func, args, arguments, self.where)


def _call(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], where: str
) -> Any:
    """Call a target; errors about its arguments name the user's keys."""
    for parameter in list(inspect.signature(target).parameters.values())[len(args) :]:
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variable and parameter.name not in kwargs:
            raise UserError(f"missing required key {_join(where, parameter.name)}")
    with keys_under(where):
        return target(*args, **kwargs)


def map_values(change: Callable[[Any, str], Any], value: Any, where: str) -> Any:
    """Apply `change(part, key)` to the items of a list or mapping."""
    if isinstance(value, Mapping):
        return {str(name): change(part, _join(where, name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [change(part, f"{where}[{number}]") for number, part in enumerate(value)]
    return value


def replace_marks(node: Node, key_path: str, marks: Callable[[Node, str], dict[str, Node]]) -> Node:
    """Return a node with the special keys of each part replaced by those that `marks` returns.

    Items of a list have the place of the list.
    """
    if isinstance(node, list):
        return [replace_marks(part, key_path, marks) for part in node]
    special = marks(node, key_path)
    if not isinstance(node, dict):
        return node
    parts = {key: part for key, part in node.items() if key not in (TARGET, PARTIAL, TYPE)}
    return special | {
        key: replace_marks(part, f"{key_path}.{key}", marks) for key, part in parts.items()
    }


def nearest(wrong: str, options: Iterable[str], where: str = "") -> str:
    """Return the end of a message: the closest option, or all options, with the prefix `where`."""
    options = list(options)
    matches = difflib.get_close_matches(wrong, options, n=1, cutoff=0.5)
    if matches:
        return f"; did you mean {_join(where, matches[0])}?"
    return f"; choose from {', '.join(options)}" if options else f"; {where} has no keys"


def import_path(path: str, where: str = "") -> Callable[..., Any]:
    """Import the class or function that a dotted path names.

    Files of earlier versions hold paths of seqattn from before a class moved: it is then looked up
    by its name among the classes of `conf/`.

    Raises:
        UserError: if there is none, or it is neither.
    """
    key = _join(where, TARGET)
    parts = path.split(".") if isinstance(path, str) else []
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UserError(f"{key} must name a class as package.Class, got {shown(path)}")
    try:
        target = pydoc.locate(path)
        if target is None and parts[0] == "seqattn":
            path = _shipped_paths().get(parts[-1], path)
            target = pydoc.locate(path)
    except pydoc.ErrorDuringImport as error:
        # a package of an extra is not installed, or a signal
        if isinstance(error.value, UserError | KeyboardInterrupt):
            raise error.value from None
        raise UserError(f"cannot import {key}={path}: {error.value}") from error
    if parts[0] not in sys.modules:
        raise UserError(
            f"cannot import {key}={path}: No module named {parts[0]!r}; run in the folder that "
            f"holds {parts[0]}, or add that folder to PYTHONPATH"
        )
    if target is None:
        extra = missing_extra(path)
        if extra:
            raise UserError(f"{key}={path} needs {extra}, which is not installed")
        module, _, name = path.rpartition(".")
        raise UserError(f"cannot import {key}={path}: {module} has no {name}")
    if not callable(target):
        raise UserError(f"{key}={path} must name a class or a function")
    return target


@cache
def _shipped_paths() -> dict[str, str]:
    """Return the path of each class of seqattn that `conf/` names, by its last name."""
    texts = (file.read_text(encoding="utf-8") for file in CONF.rglob("*.yaml"))
    matches = (re.findall(rf"\b{TARGET}: *(seqattn[\w.]*\.(\w+))", text) for text in texts)
    return {name: path for paths in matches for path, name in paths}


def missing_extra(path: str) -> str | None:
    """Return the extra that a dotted path names if it is not installed."""
    extra = ".".join(path.split(".")[:3])
    if not extra.startswith("seqattn.extras.") or pydoc.locate(extra):
        return None
    return extra


def _join(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def with_settings(node: Mapping[str, Node], settings: Mapping[str, Any]) -> dict[str, Node]:
    """Return a node with some settings changed, merging nested nodes."""
    merged = dict(node)
    for name, value in settings.items():
        within = isinstance(value, Mapping) and TARGET not in value
        previous = node.get(name)
        merged[name] = (
            with_settings(previous, value) if within and isinstance(previous, Mapping) else value
        )
    return merged
