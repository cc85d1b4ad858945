"""How a model reads texts: as ids, those that are too long left out, cut short or in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from seqattn.checking import checked
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS

Ints = npt.NDArray[np.int64]

Length = Annotated[int, Ge(2), Le(10**6)]
"""Tokens that are read together, the end mark among them."""
LONGEST_WHOLE = 16_384
"""Tokens of a source that generation reads whole; attention takes the square of them."""


@checked
@dataclass(frozen=True)
class LongSources:
    """A rule for sources beyond a length, the same in training and generation.

    Args:
        how: "drop" leaves them out; "truncate" keeps their first tokens; "window" reads them in
            windows of full length that overlap, of which the last ends where the source ends.
        maximum: tokens of what is read at once, the end mark counted.
        stride: tokens from one window's first to the next one's first, 1 to `maximum` - 1; None
            for half a window.

    Raises:
        UserError: a value out of its range.
    """

    how: Literal["drop", "truncate", "window"]
    maximum: Length
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.stride is not None and not 1 <= self.stride < self.maximum:
            raise UserError(
                f"window_stride must be from 1 to {self.maximum - 1} (max_source_length without "
                f"the end mark), so that no token is left out, got {self.stride}"
            )

    def starts(self, length: int) -> list[int]:
        """The first token of each piece of a source of `length` tokens, its end mark counted."""
        if length > self.maximum and self.how == "drop":
            return []
        if length <= self.maximum or self.how == "truncate":
            return [0]
        last, stride = length - self.maximum, self.stride or max(1, (self.maximum - 1) // 2)
        return [*range(0, last, stride), last]


def cut(ids: Sequence[int], rule: LongSources) -> list[list[int]]:
    """The pieces in which a source (ids with the end mark) is read.

    Returns:
        The source as it is where it fits; else no piece, its beginning, or its windows, each
        piece of `rule.maximum` tokens with an end mark of its own.
    """
    if len(ids) <= rule.maximum:
        return [list(ids)]
    width = rule.maximum - 1
    return [[*ids[start : start + width], EOS] for start in rule.starts(len(ids))]


def pieces(lengths: Ints, rule: LongSources) -> tuple[Ints, Ints]:
    """Lists the pieces of N sources, as `cut` makes them.

    Args:
        lengths: (N,) the sources' tokens, end marks counted.
        rule: what becomes of those that are too long.

    Returns:
        (M,) the source of each piece, in order, and (M,) its first token.
    """
    starts = [rule.starts(length) for length in lengths.tolist()]
    sources = np.repeat(np.arange(len(lengths)), list(map(len, starts)))
    return sources, np.array([start for found in starts for start in found], np.int64)


def read_sources(
    texts: Sequence[str], tokenizer: Tokenizer, rule: LongSources
) -> list[list[list[int]]]:
    """The ids of each text in the pieces in which a model reads it when it generates.

    Args:
        texts: sources as written.
        tokenizer: what encodes them.
        rule: of training; where it leaves long sources out, they are read whole here.

    Returns:
        For each text one piece, or its windows; a text of white space has one piece of no ids.

    Raises:
        UserError: a text to be read whole has more than `LONGEST_WHOLE` tokens.
    """
    read = []
    for number, row in enumerate(tokenizer.encode_source(texts), 1):
        ids = row if texts[number - 1].strip() else []
        if rule.how == "drop" and len(ids) > LONGEST_WHOLE:
            raise UserError(
                f"a text must have at most {LONGEST_WHOLE:,} tokens to be read whole, number "
                f"{number:,} has {len(ids):,}; split it, or train with long_sources=truncate or "
                "window"
            )
        read.append([ids] if rule.how == "drop" else cut(ids, rule))
    return read


def question_source(question: str, context: str) -> str:
    """The text from which a model writes an answer."""
    return f"question: {question} context: {context}"
