"""Values of the wrong kind, refused before any work."""

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from hydra.utils import get_object

from seqattn.errors import UserError

_OWN: dict[str, Any] = {
    "name": str,
    "run_dir": str | None,
    "resume": str | None,
    "init_from": str | None,
    "cache_dir": str | None,
    "seed": int,
    "task.label_smoothing": float,
    "task.validation.every": int,
    "task.validation.sentences": int,
    "checkpoint.monitor": str,
    "checkpoint.average": str,
    "checkpoint.count": int,
    "checkpoint.patience": int | None,
    "bundle": str,
    "split": str,
    "input": str | None,
    "output": str | None,
    "heads": str,
    "num_kv_heads": int | None,
    "slots": list[str],
    "uptrain_steps": int,
    "n_best": int | None,
    "scores": bool,
    "device": str,
    "lengths": list[int] | None,
    "evaluations": list[str],
    "generation.batch_size": int,
    "generation.batch_tokens": int,
}
"""The verbs' keys that are no argument of a `_target_`."""
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_NUMBERS = {int: "whole numbers", float: "numbers", str: "texts"}


def check_kinds(config: Mapping[str, Any]) -> None:
    """Refuses any value of the wrong kind in a resolved configuration.

    Raises:
        UserError: naming the key and what it must be.
    """
    check_own_keys(config)
    check_targets(config)


def check_own_keys(config: Mapping[str, Any]) -> None:
    """Refuses a key of the command itself whose value is of the wrong kind.

    Raises:
        UserError: naming the key and what it must be.
    """
    for key, hint in _OWN.items():
        value: Any = config
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                break
            value = value[part]
        else:
            _check(key, value, hint)


def check_targets(value: Any, where: str = "") -> None:
    """Refuses what a `_target_` does not take: a key it lacks, a value of the wrong kind.

    Args:
        value: a configuration, resolved.
        where: its place, as the user writes it.

    Raises:
        UserError: naming the key.
    """
    if isinstance(value, Mapping):
        if "_target_" in value:
            _check_target(value, where)
        for key, inner in value.items():
            check_targets(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            check_targets(inner, where)


def _check_target(node: Mapping[str, Any], where: str) -> None:
    try:
        parameters = inspect.signature(get_object(node["_target_"]), eval_str=True).parameters
    except NameError:  # hints that a library resolves for type checkers alone
        return
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key.startswith("_") or f"{where}.{key}" in _OWN:
            continue
        if key in parameters:
            hint = parameters[key].annotation
            _check(f"{where}.{key}", value, Any if hint is inspect.Parameter.empty else hint)
        elif not takes_more:
            known = ", ".join(parameters)
            raise UserError(f"there is no key {where}.{key}; {where} takes {known}")


def _check(key: str, value: Any, hint: Any) -> None:
    if not _fits(value, hint):
        raise UserError(f"{key} must be {_words(hint)}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if hint in (None, type(None)):
        return value is None
    if hint in _WORDS:
        wider = (int, float) if hint is float else hint
        return isinstance(value, wider) and (hint is bool or not isinstance(value, bool))
    if origin in (list, tuple, Sequence):
        if not isinstance(value, list):
            return False
        fixed = origin is tuple and ... not in parts
        if fixed and len(value) != len(parts):
            return False
        return all(_fits(inner, parts[n if fixed else 0]) for n, inner in enumerate(value))
    if hint is Any or origin is Literal:  # whoever takes one of some words names them all
        return True
    # an object is written as a node of its own
    return isinstance(value, Mapping)


def _words(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        plain = [part for part in parts if part in (*_WORDS, type(None)) or get_args(part)]
        return " or ".join(dict.fromkeys(_words(part) for part in plain))
    if hint in (None, type(None)):
        return "null"
    if hint in _WORDS:
        return _WORDS[hint]
    if origin in (list, tuple, Sequence):
        count = f"{len(parts)} " if origin is tuple and ... not in parts else ""
        return f"a list of {count}{_NUMBERS.get(parts[0], 'values')}"
    if origin is Literal:
        return " or ".join(str(part) for part in parts)
    return "a choice with a _target_ of its own"
