"""How texts become batches: what fits, what is cut, what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from seqattn.checking import Count, checked
from seqattn.data.bucketing import BatchLimits, Ints
from seqattn.data.reading import Length, LongSources
from seqattn.errors import UserError

Workers = Annotated[int, Ge(0), Le(256)]
"""Processes that prepare batches."""


@checked
@dataclass(frozen=True)
class LoaderOptions(BatchLimits):
    """How batches of pairs are made.

    Attributes:
        batches: what a task must learn from to use these options; a class attribute.

    Args:
        max_tokens, max_rows, max_square: as `BatchLimits`.
        max_length: pairs with more tokens on either side (the end mark counted) are left out.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, of use with a GPU only.
        long_sources: what becomes of sources that are too long: "drop" leaves their pairs out,
            "truncate" keeps their first tokens, "window" makes a pair with the same target of
            each of their windows.
        max_source_length: tokens of a source that are read at once, the end mark counted, while
            `max_length` bounds the target; None for `max_length`.
        window_stride: tokens from one window's first to the next one's; None for half a window.

    Raises:
        UserError: a value out of its range, a length beyond `max_tokens`, or a stride without
            windows.
    """

    batches: ClassVar[Literal["pairs", "spans"]] = "pairs"

    max_length: Length = 256
    num_workers: Workers = 0
    pin_memory: bool = False
    long_sources: Literal["drop", "truncate", "window"] = "drop"
    max_source_length: Length | None = None
    window_stride: int | None = None

    def __post_init__(self) -> None:
        if self.window_stride is not None and self.long_sources != "window":
            raise UserError(
                f"window_stride must go with long_sources=window, got {self.long_sources}"
            )
        longest = max(self.max_length, self.sources.maximum)
        name = "max_length" if longest == self.max_length else "max_source_length"
        self.check_holds(longest, f"a row of {name} ({longest}) tokens")

    @property
    def sources(self) -> LongSources:
        """The part that says what becomes of long sources."""
        maximum = self.max_length if self.max_source_length is None else self.max_source_length
        return LongSources(self.long_sources, maximum, self.window_stride)


@checked
@dataclass(frozen=True)
class SpanOptions(BatchLimits):
    """How batches of questions, each with a window of its context, are made.

    Attributes:
        batches: what a task must learn from to use these options; a class attribute.

    Args:
        max_tokens, max_rows, max_square: as `BatchLimits`; a row is a window and its question.
        window: tokens of a context that are read together; a longer context is read in windows.
        stride: tokens from a window's first to the next one's first; windows overlap by the rest.
        max_question: tokens of a question, the end mark counted; longer ones are left out of
            training and cut elsewhere.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, of use with a GPU only.

    Raises:
        UserError: a value out of its range, a stride beyond the window, or a window or question
            that no batch can hold.
    """

    batches: ClassVar[Literal["pairs", "spans"]] = "spans"

    max_tokens: Count = 8192
    window: Count = 384
    stride: Count = 192
    max_question: Length = 64
    num_workers: Workers = 0
    pin_memory: bool = False

    def __post_init__(self) -> None:
        if self.stride > self.window:
            raise UserError(
                f"stride must be at most window ({self.window}), so that no token is left out, "
                f"got {self.stride}"
            )
        longest = max(self.window, self.max_question)
        self.check_holds(longest, f"a window or question of {longest} tokens")

    def count(self, tokens: Ints) -> Ints:
        """How many windows contexts of so many tokens have; one of an empty context."""
        return -(-np.maximum(0, tokens - self.window) // self.stride) + 1

    def starts(self, tokens: int) -> range:
        """The first token of each window of a context."""
        return range(0, int(self.count(np.array(tokens))) * self.stride, self.stride)
