"""Input texts, questions and contexts of a bundle."""

from collections.abc import Iterable, Sequence

from seqattn.checking import shown
from seqattn.errors import UserError

Texts = str | Iterable[str]
"""One text, or several."""


def several(texts: Texts) -> Sequence[str]:
    """Return texts as a list.

    Raises:
        UserError: if one is not a text.
    """
    items = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(items, 1):
        if not isinstance(text, str):
            raise UserError(f"input {number:,} must be text, got {shown(text)}")
    return items


def as_many(
    questions: Texts, contexts: Texts, names: tuple[str, str] = ("question", "context")
) -> tuple[Sequence[str], Sequence[str]]:
    """Return questions and their contexts, or other `names`, as two lists of equal length."""
    pairs, (name, other) = (several(questions), several(contexts)), names
    if len(pairs[0]) != len(pairs[1]):
        counts = f"{len(pairs[0])} {name}s and {len(pairs[1])} {other}s"
        raise UserError(f"each {name} needs a {other}, got {counts}")
    return pairs
