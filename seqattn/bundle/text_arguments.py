"""Input texts of a bundle."""

from collections.abc import Iterable, Sequence

from seqattn.checking import shown
from seqattn.data.escapes import valid_texts
from seqattn.errors import UserError

TextOrTexts = str | Iterable[str]
"""One text, or several."""


def text_list(texts: TextOrTexts) -> Sequence[str]:
    """Return texts as a list.

    Raises:
        UserError: if one is not a text, or has half a character.
    """
    items = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(items, 1):
        if not isinstance(text, str):
            raise UserError(f"input {number:,} must be text, got {shown(text)}")
    return valid_texts(items)


def paired(
    texts: TextOrTexts, others: TextOrTexts, names: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return two kinds of texts as lists of equal length. Args: names: of both, for messages."""
    pairs, (name, other) = (text_list(texts), text_list(others)), names
    if len(pairs[0]) != len(pairs[1]):
        counts = f"{len(pairs[0])} {name}s and {len(pairs[1])} {other}s"
        raise UserError(f"each {name} needs a {other}, got {counts}")
    return pairs
