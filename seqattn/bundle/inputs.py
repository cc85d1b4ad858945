"""Texts, questions and contexts that a bundle is given."""

from collections.abc import Iterable, Sequence

from seqattn.checking import shown
from seqattn.errors import UserError

Texts = str | Iterable[str]
"""One, or several."""


def several(texts: Texts) -> Sequence[str]:
    """The texts as a list, of which no other order or numbering is known than its own.

    Raises:
        UserError: one is no text.
    """
    found = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise UserError(f"number {number:,} must be text, got {shown(text)}")
    return found


def as_many(questions: Texts, contexts: Texts) -> tuple[Sequence[str], Sequence[str]]:
    """Questions and the context of each."""
    asked, read = several(questions), several(contexts)
    if len(asked) != len(read):
        raise UserError(f"each of {len(asked)} questions needs a context, got {len(read)}")
    return asked, read
