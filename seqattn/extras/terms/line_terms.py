"""Terms of one source: what its outputs must have, and what they must not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.extras.terms.words import Lexicon, begins, in_word, occurrences
from seqattn.generation.processors import Processor
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


class Forbidden(NamedTuple):
    """A term that outputs must not have.

    Args:
        text: the term.
        within: tokens that may complete an occurrence before their own end.
    """

    text: str
    within: Sequence[int]

    @classmethod
    def of(cls, text: str, pieces: Sequence[str]) -> "Forbidden":
        """Find the tokens that may complete a term. Args: pieces: texts of all tokens."""
        last, free = text[-1], not in_word(text[-1])
        within = []
        for number, piece in enumerate(pieces):
            following = (piece[n + 1 : n + 2] for n, one in enumerate(piece) if one == last)
            if any(free or (after and not in_word(after)) for after in following):
                within.append(number)
        return cls(text, within)

    def is_pending(self, text: str) -> bool:
        """Return True if a text ends with the term, unless its last word goes on."""
        return text.endswith(self.text) and begins(text, self.text, len(text) - len(self.text))

    def completed(self, text: str, pieces: Sequence[str]) -> list[int]:
        """Return the tokens that would complete an occurrence after a text."""
        tail, free = text[-len(self.text) - 1 :], not in_word(self.text[-1])
        tokens = []
        for number in self.within:
            joined = tail + pieces[number]
            ends = (place + len(self.text) for place in occurrences(joined, self.text))
            if any(len(tail) < end < len(joined) + free for end in ends):
                tokens.append(number)
        return tokens


class Progress(NamedTuple):
    """Progress of an output through its terms.

    Args:
        bank: tokens of the required terms that it has, and of those that it has begun.
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

    @property
    def pieces(self) -> list[str]:
        """Texts of the tokens."""
        return self.lexicon.folded if self.fold else self.lexicon.texts

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of an output."""
        pieces = self.pieces
        return "".join([pieces[token] for token in ids])

    def progress(self, ids: Sequence[int]) -> Progress:
        """Return how far an output has come."""
        text, bank, wanted, met, fresh = self.text(ids), 0, list[int](), True, False
        for one in self.required:
            size = max(map(len, one.forms))
            if one.met(text):
                bank += size
                fresh = fresh or text.endswith(tuple(one.texts))
                continue
            met, begun = False, 0
            for form in one.forms:
                lengths = range(len(form) - 1 if ids and ids[-1] in form else 0, -1, -1)
                done = next(n for n in lengths if _ends_with(ids, form[:n]))
                wanted.append(form[done])
                begun = max(begun, size - len(form) + done if done else 0)
            bank += begun
        met = met and not any(one.is_pending(text) for one in self.forbidden)
        return Progress(bank, wanted, met, fresh)

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        after = torch.as_tensor(self.lexicon.after, device=scores.device)
        for row, ids in enumerate(said.tolist()):
            text = self.text(ids)
            if not all(one.met(text) for one in self.required):
                scores[row, EOS] = -torch.inf
            for one in self.forbidden:
                if one.is_pending(text):
                    scores[row, after] = -torch.inf
                if tokens := one.completed(text, self.pieces):
                    scores[row, tokens] = -torch.inf


def _ends_with(ids: Sequence[int], part: Sequence[int]) -> bool:
    return not part or tuple(ids[-len(part) :]) == tuple(part)
