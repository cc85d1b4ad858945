"""Input texts, questions and contexts of a bundle."""

from collections.abc import Iterable, Sequence

from seqattn.checking import shown
from seqattn.errors import UserError

Texts = str | Iterable[str]
"""One text, or several."""


def several(texts: Texts) -> Sequence[str]:
    """Return texts as a list.

    Raises:
        UserError: one is not a text.
    """
    items = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(items, 1):
        if not isinstance(text, str):
            raise UserError(f"number {number:,} must be text, got {shown(text)}")
    return items


def as_many(questions: Texts, contexts: Texts) -> tuple[Sequence[str], Sequence[str]]:
    """Return lists of questions and of the context of each."""
    asked, read = several(questions), several(contexts)
    if len(asked) != len(read):
        raise UserError(f"each of {len(asked)} questions needs a context, got {len(read)}")
    return asked, read
