"""Settings of batches of questions."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqattn.checking import Count
from seqattn.data.options import BatchLimits, Ints, Length, numbered
from seqattn.errors import UserError


@dataclass(frozen=True)
class SpanOptions(BatchLimits):
    """Settings of batches of questions, each with a window of its context.

    Args:
        max_tokens, max_rows, max_square, step_batches, num_workers, pin_memory: as `BatchLimits`;
            a row is a window and its question.
        window: tokens of a context read together; a longer context is read in windows.
        stride: tokens from the start of one window to the next; windows overlap by the rest.
        max_question: tokens of a question, the end mark included; longer ones are left out of
            training, and truncated elsewhere.

    Raises:
        UserError: for a stride longer than the window, or a window or question that fits no batch.
    """

    batches: ClassVar[str] = "spans"

    max_tokens: Count = 8192
    window: Count = 384
    stride: Count = 192
    max_question: Length = 64

    def __post_init__(self) -> None:
        if self.stride > self.window:
            raise UserError(
                f"loader.stride must be at most loader.window ({self.window}) so that windows "
                f"cover every token, got {self.stride}"
            )
        longest = self.longest_row[1]
        self.check_holds(longest, f"a window or question of {longest} tokens")

    @property
    def longest_row(self) -> tuple[str, int]:
        return "window", max(self.window, self.max_question)

    def pieces(self, lengths: Ints) -> tuple[Ints, Ints]:
        """List the windows of N contexts of some lengths; an empty one has one window.

        Returns:
            (M,) the context number of each window, in order, and (M,) its first token.
        """
        rows, numbers = numbered(1 - -np.maximum(lengths - self.window, 0) // self.stride)
        return rows, numbers * self.stride
