"""Escaping of characters reserved by sentencepiece, which writes "▁" for a space and leaves lines
with "▅" out of its training."""

import re

_KEEP, _SPACE, _BLOCK = "\U0010fffb", "\U0010fffc", "\U0010fffd"
_ESCAPED = {"▁": _SPACE, "▅": _BLOCK} | {sign: _KEEP + sign for sign in (_KEEP, _SPACE, _BLOCK)}
_UNESCAPED = {value: key for key, value in _ESCAPED.items()}
_SPECIAL = re.compile("|".join(_ESCAPED))
_SPELT = re.compile(f"{_KEEP}.|[{_SPACE}{_BLOCK}]")


def escaped(text: str) -> str:
    """Return the text with those characters escaped."""
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], text)


def unescaped(text: str) -> str:
    """Return the original of an escaped text."""
    return _SPELT.sub(lambda match: _UNESCAPED.get(match[0], match[0]), text)
