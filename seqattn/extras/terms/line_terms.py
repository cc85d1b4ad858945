"""Terms of one source: what its outputs must have, and what they must not."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.extras.terms.words import BYTES, Lexicon, boundary, occurrences, spelled
from seqattn.generation.processors import Processor
from seqattn.metrics.scripts import in_word
from seqattn.tokens import EOS


class Required(NamedTuple):
    """A term that outputs must have.

    Args:
        texts: its variants, one of which is enough.
        forms: tokens that spell the variants.
    """

    texts: Sequence[str]
    forms: Sequence[tuple[int, ...]]

    def met(self, text: str) -> bool:
        """Return True if a text has one of the variants."""
        some = (one for one in self.texts if one in text)
        return any(True for variant in some for _ in occurrences(text, variant))


class Forbidden:
    """Terms that outputs must not have.

    Args:
        texts: the terms, folded if `fold`.
        lexicon: texts of the tokens.
        fold: ignore case.
    """

    def __init__(self, texts: Collection[str], lexicon: Lexicon, fold: bool) -> None:
        self.texts, self.lexicon, self.fold = {*texts}, lexicon, fold
        self.sizes, self.lasts = {*map(len, texts)}, {text[-1] for text in texts}
        self.within = {token for last in self.lasts for token in lexicon.endings.get(last, ())}
        """Tokens that may complete a term before their own end."""

    def is_pending(self, text: str) -> bool:
        """Return True if a text ends with a term, unless its last word goes on."""
        text = text.rstrip(BYTES)
        return bool(text) and in_word(text[-1]) and self._ends(text, len(text))

    def completed(self, text: str) -> list[int]:
        """Return the tokens that would complete a term after a text."""
        begun, tokens = text.rstrip(BYTES), self.within
        if begun != text or self.is_pending(text):  # a byte may end the word, or not
            tokens = tokens | self.lexicon.bytes
        cut = max(0, len(begun) - max(self.sizes, default=0) - 1)
        # the last character of a word may get a mark, and end elsewhere
        tail, first = text[cut:], len(begun) - cut + (not begun or not in_word(begun[-1]))
        found = []
        for token in tokens:
            joined = spelled(tail + self.lexicon.texts[token], self.fold)
            size = len(joined)
            if any(
                (end < size or not in_word(joined[-1]))
                and boundary(joined, end)
                and self._ends(joined, end)
                for end in range(first, size + 1)
            ):
                found.append(token)
        return found

    def _ends(self, text: str, end: int) -> bool:
        """Return True if a term ends at a place of a text, of whose words it begins one."""
        if text[end - 1 : end] not in self.lasts:
            return False
        starts = (end - size for size in self.sizes if size <= end)
        return any(text[one:end] in self.texts and boundary(text, one) for one in starts)


class Progress(NamedTuple):
    """Progress of an output through its terms.

    Args:
        bank: tokens of the required terms that it has. At its end, where one term may be the
            beginning of another, tokens of those that it ends with, or of the most advanced of
            those that it has begun, whichever are more.
        wanted: tokens that bring it further.
        met: True if it has all required terms, and does not end with a forbidden one.
        fresh: True if it ends with a required term, whose last word may go on.
    """

    bank: int
    wanted: list[int]
    met: bool
    fresh: bool


@dataclass(frozen=True, eq=False)
class LineTerms(Processor):
    """Terms of a source.

    As a processor it forbids the end before an output has all required terms, and tokens that
    complete a forbidden one; a search chooses hypotheses by `progress`.

    Args:
        lexicon: texts of the tokens.
        required, forbidden: the terms, folded if `fold`.
        fold: ignore case.
    """

    lexicon: Lexicon
    required: Sequence[Required]
    forbidden: Sequence[Forbidden]
    fold: bool

    def __str__(self) -> str:
        return "terms"

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of an output."""
        return self.lexicon.text(ids, self.fold)

    def progress(self, ids: Sequence[int]) -> Progress:
        """Return how far an output has come."""
        text, sure, ended, begun, wanted = self.text(ids), 0, 0, 0, list[int]()
        met = not any(one.is_pending(text) for one in self.forbidden)
        for one in self.required:
            size = max(map(len, one.forms))
            if one.met(text):
                if text.endswith(tuple(one.texts)) and not one.met(f"{text}x"):
                    ended += size  # until its last word goes on
                else:
                    sure += size
                continue
            met = False
            for form in one.forms:
                done = self._begun(ids, text, form)
                if done is not None:
                    wanted.append(form[done])
                    begun = max(begun, size - len(form) + done if done else 0)
        return Progress(sure + max(ended, begun), wanted, met, ended > 0)

    def _begun(self, ids: Sequence[int], text: str, form: tuple[int, ...]) -> int | None:
        """Return how many tokens of a term an output ends with, None if it cannot begin there."""
        first = self.lexicon.texts[form[0]][:1]
        for done in range(len(form) - 1 if ids and ids[-1] in form else 0, -1, -1):
            if _ends_with(ids, form[:done]):
                before = self.text(ids[: len(ids) - done]) if done else text
                if boundary(before + first, len(before)):
                    return done
        return None

    def __call__(self, scores: Tensor, prefix: Tensor) -> None:
        after = torch.as_tensor(self.lexicon.after, device=scores.device)
        for row, ids in enumerate(prefix.tolist()):
            text = self.text(ids)
            if not all(one.met(text) for one in self.required):
                scores[row, EOS] = -torch.inf
            for one in self.forbidden:
                if one.is_pending(text):
                    scores[row, after] = -torch.inf
                if tokens := one.completed(text):
                    scores[row, tokens] = -torch.inf


def _ends_with(ids: Sequence[int], part: Sequence[int]) -> bool:
    return not part or tuple(ids[-len(part) :]) == tuple(part)
