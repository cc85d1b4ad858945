"""Prefixes of outputs as tokens."""

from bisect import bisect_left
from functools import cached_property
from itertools import accumulate, takewhile
from typing import Any

import numpy as np

from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation.constraints import Constraints
from seqattn.metrics.scripts import in_word
from seqattn.tokens import EOS, RESERVED, UNK


class Prefixes:
    """Reader of prefixes, with the target vocabulary of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.pieces = tokenizer, tokenizer.target_vocabulary()
        self.space = "▁" if any(piece[0] == "▁" for piece in self.pieces) else "Ġ"  # byte-level
        self.longest = max(map(len, self.pieces))

    def read(self, prefix: str, number: int) -> Constraints:
        """Return the constraint that outputs begin with a prefix.

        A space at its end completes its last word, which has the pieces of the text. Otherwise the
        last piece may reach beyond the prefix, and the last word may have a longer piece.

        Args:
            prefix: the text.
            number: number of its input, for messages.

        Raises:
            UserError: the vocabulary lacks some of its text.
        """
        ids = tuple(self.tokenizer.encode_target([prefix.rstrip()])[0][:-1])
        if UNK in ids:
            lacking = f"prefix {prefix!r} of input {number:,} contains text"
            raise UserError(f"{lacking} that the target vocabulary lacks")
        first = len(self.tokenizer.target_begin)
        if len(ids) <= first:
            return Constraints(self.tokenizer.target_begin)
        if prefix[-1].isspace():
            return Constraints(ids, [self.after_words])
        words = [n for n in range(first, len(ids)) if self.pieces[ids[n]][0] == self.space]
        last = [self.pieces[token] for token in ids[max(words, default=first) :]]
        rests = accumulate(last[::-1], lambda rest, piece: piece + rest)
        # no piece begins with a longer text
        ends = map(self._beginning, takewhile(lambda rest: len(rest) <= self.longest, rests))
        return Constraints(ids[:-1], [*ends][::-1], whole=False)

    @cached_property
    def after_words(self) -> Any:
        """The end, and pieces that do not continue a word."""
        apart = (not (text and in_word(text[0])) for text in self.tokenizer.target_texts())
        return np.array([EOS, *(n for n, one in enumerate(apart) if one and n >= RESERVED)])

    @cached_property
    def _sorted(self) -> list[tuple[str, int]]:
        return sorted((name, n) for n, name in enumerate(self.pieces) if n >= RESERVED)

    def _beginning(self, text: str) -> Any:
        """Return the pieces that begin with a text."""
        bounds = (bisect_left(self._sorted, (one,)) for one in (text, text + chr(0x10FFFF)))
        return np.array([number for _, number in self._sorted[slice(*bounds)]], np.int64)
