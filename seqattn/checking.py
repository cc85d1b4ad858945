"""Bounded types for parameters, and checks of the values that settings give them."""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from seqattn.errors import UserError
from seqattn.roles import Role

Width = Annotated[int, Ge(1), Le(65_536)]
"""Width of a vector."""
Depth = Annotated[int, Ge(0), Le(1_000)]
"""Number of layers in a stack."""
Count = Annotated[int, Ge(1), Le(10**9)]
"""A count of at least 1."""
CountOrNone = Annotated[int, Ge(0), Le(10**9)]
"""A count that may be 0."""
Seed = Annotated[int, Ge(0), Le((1 << 32) - 1)]
"""Seed of a random number generator."""
Share = Annotated[float, Ge(0), Le(1)]
"""A fraction from 0 to 1."""
Dropout = Annotated[float, Ge(0), Lt(1), Role.STEP]
"""Dropout probability, below 1."""
Positive = Annotated[float, Gt(0), Le(10**9)]
"""A positive number."""
NotNegative = Annotated[float, Ge(0), Le(10**9)]
"""A number of at least 0."""
Rate = Annotated[float, Ge(0), Le(1_000)]
"""A peak learning rate; a schedule such as Noam's scales it down."""

_LONGEST_SHOWN = 80
_PLAIN_TYPES = (type(None), bool, int, float, str, list, tuple)
"""Values that messages show as they are."""
_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_PLURAL = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts"}
_BOUNDS = {Ge: "of at least", Gt: "above", Le: "of at most", Lt: "below"}


class BadValue(UserError):
    """A value that its parameter cannot take.

    Args:
        key: the parameter.
        reason: the requirement and the actual value, such as "must be at least 1, got 0".
        beside: another parameter of the same place that the reason names.
    """

    def __init__(self, key: str, reason: str, beside: str = "") -> None:
        super().__init__(f"{key} {reason}")
        self.key, self.reason, self.beside = key, reason, beside


@contextmanager
def keys_under(node: str) -> Iterator[None]:
    """Prefix the keys of bad values raised in the block with the key of their parent."""
    try:
        yield
    except BadValue as error:
        if not node:
            raise UserError(str(error)) from None
        beside, reason = error.beside, error.reason
        reason = reason.replace(beside, f"{node}.{beside}", 1) if beside else reason
        raise UserError(f"{node}.{error.key} {reason}") from None


def check(target: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check arguments against the annotated types and bounds of the parameters.

    Numbers must be finite, and text may not contain lone surrogates.

    Args:
        target: a class or function.
        arguments: by name; those without an annotation, or with an unknown one, are not checked.

    Raises:
        BadValue: for the first invalid value, with what is valid.
    """
    hints = parameters(target)
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        if not _accepts(hint, value):
            optional = "null or " * _accepts(hint, None)
            expected = in_words(hint) or f"{optional}a config node of a matching class"
            function = getattr(value, "func", None)  # what a factory calls
            kind = getattr(function, "__name__", type(value).__name__)
            came = shown(value) if isinstance(value, _PLAIN_TYPES) else f"a {kind}"
            raise BadValue(name, f"must be {expected}, got {came}")


@cache
def parameters(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each parameter of a function or constructor, by name."""
    source: Any = target
    if inspect.isclass(target) and not is_dataclass(target):  # its fields may be inherited
        source = inspect.unwrap(target.__init__)
    try:
        hints = get_type_hints(source, include_extras=True)
    except (NameError, TypeError):  # names imported only under TYPE_CHECKING
        hints = {}
    return {name: hints.get(name, Any) for name in inspect.signature(target).parameters}


def shown(value: object) -> str:
    """Return a value as messages show it, truncated if long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@cache
def in_words(hint: Any) -> str:
    """Describe the values of a plain type, such as "a whole number of at least 1"; else "".

    A type is plain if its values can be written as literals.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, bounds = in_words(parts[0]), [bound for bound in parts[1:] if type(bound) in _BOUNDS]
        limits = {type(bound): f"{astuple(bound)[0]:,}" for bound in bounds}
        if limits.keys() == {Ge, Le}:
            return base and f"{base} from {limits[Ge]} to {limits[Le]}"
        phrase = " and ".join(f"{_BOUNDS[kind]} {limit}" for kind, limit in limits.items())
        return base and f"{base} {phrase}".strip()
    if origin in (Union, types.UnionType):
        words = [in_words(part) for part in parts]
        return " or ".join(dict.fromkeys(words)) if all(words) else ""
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (list, tuple, Sequence):
        if get_origin(parts[0]) is Literal:
            return f"a list of values from {', '.join(map(str, get_args(parts[0])))}"
        fixed = f"{len(parts)} " if origin is tuple and ... not in parts else ""
        inner = get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]
        plain = all(part is ... or in_words(part) for part in parts)
        return f"a list of {fixed}{_PLURAL.get(inner, 'values')}" if plain else ""
    return "null" if hint in (None, type(None)) else _PLAIN.get(hint, "")


@cache
def _adapter(hint: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter  # takes a tenth of a second to import

    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False, strict=True))


def _accepts(hint: Any, value: Any) -> bool:
    """Return True if a value matches a type, as far as that can be checked."""
    if in_words(hint):
        return _is_valid(hint, value)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _accepts(parts[0], value)
    if origin in (Union, types.UnionType):
        return any(_accepts(part, value) for part in parts)
    kind: Any = origin or hint
    if not inspect.isclass(kind) or kind in (Any, object):
        return True
    if getattr(kind, "_is_protocol", False):
        return callable(value) or not isinstance(value, (*_PLAIN_TYPES, dict))
    return isinstance(value, kind) and not isinstance(value, str)


def _is_valid(hint: Any, value: Any) -> bool:
    from pydantic import ValidationError

    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return False  # a lone surrogate, which UTF-8 cannot encode
    if get_origin(hint) is tuple and isinstance(value, list):  # YAML has no tuples
        value = tuple(value)
    try:
        _adapter(hint).validate_python(value)
    except ValidationError:
        return False
    return True
