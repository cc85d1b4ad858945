"""Configuration nodes, which are plain dicts and lists, to objects and back.

A node with `_target_: package.Class` is an object of that class, its other keys the arguments of
the constructor; with `_partial_: true` it is a factory, to be called with what is still missing.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from seqattn.checking import ARGUMENTS, BadValue, check, in_words, is_plain, parameters, shown
from seqattn.errors import UserError

TARGET, PARTIAL = "_target_", "_partial_"
Node = Any
"""What YAML can hold: a scalar, a list of nodes, or a dict from texts to nodes."""
_SCALARS = (bool, int, float, str)


def build(node: Node, where: str = "") -> Any:
    """Makes what a node describes.

    Args:
        node: scalars, lists and dicts, interpolations resolved.
        where: the key that holds it, with dots, for messages.

    Returns:
        The object of a `_target_`, a `functools.partial` of it where `_partial_` is true, and the
        same kind of value for everything else. A partial makes the objects nested in it anew at
        each call, so that layers made by it share nothing.

    Raises:
        UserError: for an unknown or missing key, a value that its parameter cannot take, or a
            `_target_` that is not there; the message names the key.
    """
    if isinstance(node, Mapping):
        if TARGET in node:
            return _construct(node, where)
        return {name: build(value, _join(where, name)) for name, value in node.items()}
    if isinstance(node, list | tuple):
        return [build(part, f"{where}[{number}]") for number, part in enumerate(node)]
    return node


def describe(value: Any, where: str = "") -> Node:
    """The node from which `build` makes the same again.

    Args:
        value: plain values, lists, mappings, partials and classes as factories, dataclasses, and
            objects that keep their constructor's arguments under the same names.
        where: the key that holds it, with dots, for messages.

    Raises:
        UserError: for anything else.
    """
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): describe(part, _join(where, name)) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [describe(part, f"{where}[{number}]") for number, part in enumerate(value)]
    if isinstance(value, partial):
        names = list(parameters(value.func))[: len(value.args)]
        given = {**dict(zip(names, value.args, strict=True)), **value.keywords}
        return _described(value.func, given, where, {PARTIAL: True})
    if inspect.isclass(value) or inspect.isroutine(value):
        return _described(value, {}, where, {PARTIAL: True})
    if ARGUMENTS in getattr(value, "__dict__", {}):
        return _described(type(value), vars(value)[ARGUMENTS], where, {})
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.init]
    else:
        names = list(inspect.signature(type(value)).parameters)
    if not all(hasattr(value, name) for name in names):
        raise UserError(
            f"{where} holds a {type(value).__name__}, which keeps its settings to itself and "
            "cannot be written; give it as a dataclass or a functools.partial"
        )
    return _described(type(value), {name: getattr(value, name) for name in names}, where, {})


def nearest(wrong: str, options: Iterable[str], where: str = "") -> str:
    """The end of a message: which of the options was meant, or which there are, all at `where`."""
    options = list(options)
    found = difflib.get_close_matches(wrong, options, n=1, cutoff=0.5)
    if found:
        return f"; did you mean {_join(where, found[0])}?"
    return f"; it takes {', '.join(options) or 'none'}"


def import_path(path: str, where: str = "") -> Callable[..., Any]:
    """The class or function that a dotted path names.

    Raises:
        UserError: where it is not there, or is neither.
    """
    key = _join(where, TARGET)
    parts = path.split(".") if isinstance(path, str) else []
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UserError(f"{key} must name a class as package.Class, got {shown(path)}")
    found: Any = None
    for cut in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:cut])
        try:
            found = importlib.import_module(name)
            break
        except ImportError as error:
            # that module or one above it may be a class; another one is missing inside it
            absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(
                f"{error.name}."
            )
            if not absent or cut == 1:
                raise UserError(f"{key}={path} cannot be imported: {error}") from error
    for part in parts[cut:]:
        if not hasattr(found, part):
            raise UserError(f"{key}={path}: there is no {part} in {name}")
        found, name = getattr(found, part), part
    if not callable(found):
        raise UserError(f"{key}={path} must name a class or a function")
    return found


class _Factory(partial[Any]):
    """A partial that makes the objects nested in it anew at each call."""

    node: Node
    where: str

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = {**_arguments(self.node, self.where), **kwargs}
        return _call(self.func, args, given, self.where)


def _construct(node: Mapping[str, Node], where: str) -> Any:
    target = import_path(node[TARGET], where)
    is_factory = node.get(PARTIAL, False)
    if not isinstance(is_factory, bool):
        raise UserError(f"{_join(where, PARTIAL)} must be true or false, got {shown(is_factory)}")
    _check_names(target, node, where)
    given = _arguments(node, where)
    _check_values(target, given, where)
    if not is_factory:
        return _call(target, (), given, where)
    factory = _Factory(target, **given)
    factory.node, factory.where = node, where
    return factory


def _call(
    target: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any], where: str
) -> Any:
    """Calls a target; what it lacks and what it refuses is told by the user's keys."""
    takes = list(inspect.signature(target).parameters.values())[len(args) :]
    for parameter in takes:
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variable and parameter.name not in given:
            raise UserError(f"{_join(where, parameter.name)} must be given")
    try:
        return target(*args, **given)
    except BadValue as error:
        raise UserError(str(error.under(where))) from None


def _arguments(node: Mapping[str, Node], where: str) -> dict[str, Any]:
    named = {name: value for name, value in node.items() if name not in (TARGET, PARTIAL)}
    return {name: build(value, _join(where, name)) for name, value in named.items()}


def _check_names(target: Callable[..., Any], node: Mapping[str, Node], where: str) -> None:
    """Refuses keys that `target` does not take."""
    takes = inspect.signature(target).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        return
    for name in node:
        if name not in (TARGET, PARTIAL) and name not in takes:
            raise UserError(f"there is no key {_join(where, name)}{nearest(name, takes, where)}")


def _check_values(target: Callable[..., Any], given: Mapping[str, Any], where: str) -> None:
    hints = parameters(target)
    for name, value in given.items():
        hint = hints.get(name, Any)
        takes = in_words(hint) if is_plain(hint) else "a choice with keys of its own"
        plain = value is None or isinstance(value, (*_SCALARS, list))
        if (is_plain(hint) and not plain) or not (is_plain(hint) or _accepts(hint, value)):
            came = shown(value) if plain else f"a {_name(value)}"
            raise BadValue(_join(where, name), f"must be {takes}, got {came}")
    try:
        check(target, given)
    except BadValue as error:
        raise error.under(where) from None


def _accepts(hint: Any, value: Any) -> bool:
    """Whether a value can be of a type that is more than scalars, as far as that is seen."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _accepts(parts[0], value)
    if origin in (Union, types.UnionType):
        return any(_accepts(part, value) for part in parts)
    if hint in (None, type(None)):
        return value is None
    kind: Any = origin or hint
    if not inspect.isclass(kind) or kind in (Any, object):
        return True
    if isinstance(value, str) and kind is not Path:
        return kind is str
    if kind is Callable or getattr(kind, "_is_protocol", False):
        return callable(value) or not (value is None or isinstance(value, (*_SCALARS, list, dict)))
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


def _described(
    target: Callable[..., Any], given: Mapping[str, Any], where: str, marks: Mapping[str, bool]
) -> Node:
    path = f"{target.__module__}.{target.__qualname__}"
    if "<" in path:
        raise UserError(f"{where} holds {path}, which cannot be written; give a class or function")
    named = {name: describe(value, _join(where, name)) for name, value in given.items()}
    return {TARGET: path, **marks, **named}


def _name(value: Any) -> str:
    return str(getattr(getattr(value, "func", None), "__name__", type(value).__name__))


def _join(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)
