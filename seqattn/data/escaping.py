"""Signs that sentencepiece keeps for itself: it writes "▁" for a space, and leaves lines with "▅"
out of its training."""

import re

_KEEP, _SPACE, _BLOCK = "\U0010fffb", "\U0010fffc", "\U0010fffd"
_ESCAPED = {"▁": _SPACE, "▅": _BLOCK} | {sign: _KEEP + sign for sign in (_KEEP, _SPACE, _BLOCK)}
_UNESCAPED = {value: key for key, value in _ESCAPED.items()}
_SPECIAL = re.compile("|".join(_ESCAPED))
_SPELT = re.compile(f"{_KEEP}.|[{_SPACE}{_BLOCK}]")


def escaped(text: str) -> str:
    """The text with those signs spelt by others."""
    return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], text)


def unescaped(text: str) -> str:
    """The text of which this is the escaped one."""
    return _SPELT.sub(lambda found: _UNESCAPED.get(found[0], found[0]), text)
