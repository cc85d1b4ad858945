"""Texts before they are encoded: valid Unicode, and without characters reserved by sentencepiece,
which writes "▁" for a space and leaves lines with "▅" out of its training."""

import re
from collections.abc import Sequence

from seqattn.errors import UserError

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


def valid_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts; raise UserError for a lone surrogate."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"text {number:,} is not valid Unicode: unpaired surrogate "
                f"U+{ord(text[error.start]):04X} at character {error.start + 1:,}"
            ) from error
    return list(texts)
