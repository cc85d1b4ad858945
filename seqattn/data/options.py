"""Settings of batches: limits, and treatment of long texts."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.roles import Role

Ints = npt.NDArray[np.int64]
LengthT = TypeVar("LengthT", int, npt.NDArray[np.integer[Any]])
Length = Annotated[int, Ge(2), Le(10**6)]
"""Tokens read together, the end mark included."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits on the size of a batch, and settings of its preparation.

    Args:
        max_tokens: bound on rows x the longest row of either side, marks and padding included.
        max_rows: bound on rows; None for none.
        max_square: bound on rows x (longest row of either side) squared, the memory of attention
            weights; None for none.
        step_batches: batches of an optimizer step over all ranks, a multiple of their number; None
            for the ranks' accumulated batches.
        num_workers: processes that prepare batches; 0 is fast enough.
        pin_memory: use page-locked memory, for copies to a GPU in parallel with computation; None
            for True if training is on a CUDA GPU.
    """

    batches: ClassVar[str]
    """Kind of batches, which a task requires."""

    max_tokens: Count = 4096
    max_rows: Count | None = None
    max_square: Count | None = None
    step_batches: Count | None = None
    num_workers: Annotated[int, Ge(0), Le(256), Role.NOTE] = 0
    pin_memory: Annotated[bool | None, Role.NOTE] = None

    @property
    @abstractmethod
    def longest_row(self) -> tuple[str, int]:
        """Key that bounds the length of a row, and the bound in tokens."""

    def rows(self, length: int) -> int:
        """Return the number of rows of `length` tokens that fit, 0 if one does not."""
        limit = self.max_tokens // length
        if self.max_rows is not None:
            limit = min(limit, self.max_rows)
        if self.max_square is not None:
            limit = min(limit, self.max_square // length**2)
        return limit

    def rounded(self, length: LengthT) -> LengthT:
        """Return the length that a row of some length is padded to, at least."""
        return length

    @property
    def digested(self) -> tuple[int | None, ...]:
        """The limits, as in digests of plans."""
        return self.max_tokens, self.max_rows, self.max_square

    def check_holds(self, length: int, what: str, advice: str = "") -> None:
        """Raise UserError if a row of `length` tokens, described by `what`, does not fit."""
        if self.rows(length) < 1:
            key, least = "max_tokens", length
            if self.max_tokens >= length:
                key, least = "max_square", length**2
            raise UserError(
                f"loader.{key} must be at least {least:,} for {what}, got "
                f"{getattr(self, key)}{advice}"
            )


@dataclass(frozen=True)
class LoaderOptions(BatchLimits):
    """Settings of batches of pairs.

    Args:
        max_tokens, max_rows, max_square, step_batches, num_workers, pin_memory: as `BatchLimits`.
        max_length: pairs with more tokens on either side (the end mark included) are left out.
        long_sources: treatment of sources that are too long: "drop" leaves their pairs out,
            "truncate" keeps their first tokens, "window" pairs each of their windows with the
            target; windows overlap and are full, and the last ends with the source. A head, such
            as a row's tags, begins every window.
        max_source_length: tokens of a source read at once, the end mark included; `max_length`
            then bounds only the target. None for `max_length`.
        window_stride: tokens from the start of one window to the next; None for half a window.
        subword_sampling: sample the segmentation of training texts, anew each epoch. For a unigram
            vocabulary, the exponent of a segmentation's probability (0.1 to 0.5, lower is more
            varied); for BPE, the share of merges left out (0.1). None for no sampling. Batches may
            then exceed `max_tokens`, since sampled pieces are shorter.
        round_to: batches are planned by lengths rounded up to a multiple of it, and padded to such
            lengths, so that sizes come back for `trainer.cuda_graphs`; 1 for no rounding.

    Raises:
        UserError: for a length above `max_tokens`, or a stride above the window or without windows.
    """

    batches: ClassVar[str] = "pairs"

    max_length: Length = 256
    long_sources: Literal["drop", "truncate", "window"] = "drop"
    max_source_length: Length | None = None
    window_stride: int | None = None
    subword_sampling: Annotated[float, Gt(0), Lt(1)] | None = None
    round_to: Annotated[int, Ge(1), Le(10**4)] = 1

    def __post_init__(self) -> None:
        stride, source = self.window_stride, self.source_length
        if stride is not None and self.long_sources != "window":
            raise UserError(
                f"loader.window_stride requires loader.long_sources=window, got {self.long_sources}"
            )
        name, longest = self.longest_row
        self.check_holds(longest, f"a row of {name} ({longest}) tokens")
        if stride is not None and not 1 <= stride < source:
            raise UserError(
                f"loader.window_stride must be from 1 to {source - 1} (max_source_length without "
                f"EOS) so that windows cover every token, got {stride}"
            )

    @property
    def longest_row(self) -> tuple[str, int]:
        longest = max(self.max_length, self.source_length)
        return "max_length" if longest == self.max_length else "max_source_length", longest

    def rounded(self, length: LengthT) -> LengthT:
        return -(-length // self.round_to) * self.round_to

    @property
    def digested(self) -> tuple[int | None, ...]:
        more = (self.round_to,) if self.round_to > 1 else ()  # as of earlier runs without it
        return *super().digested, *more

    @property
    def source_length(self) -> int:
        """Number of tokens of a source read at once, the end mark included."""
        return self.max_source_length or self.max_length

    @property
    def longest_head(self) -> int:
        """Number of a head's tokens that begin each window: at most half a window."""
        windows = self.long_sources == "window"
        return min(self.source_length // 2, self.source_length - 2) if windows else 0

    def pieces(self, lengths: Ints, heads: Ints) -> tuple[Ints, Ints]:
        """List the pieces in which N sources are read.

        Args:
            lengths: (N,) in tokens.
            heads: (N,) tokens of each that begin all its pieces, at most `longest_head`.

        Returns:
            (M,) the source number of each piece, in order, and (M,) its first token after the head.
        """
        beyond, free = np.maximum(lengths - self.source_length, 0), self.source_length - heads - 1
        stride = np.minimum(self.window_stride or np.maximum(free // 2, 1), free)
        counts = -(-beyond // stride) + 1
        if self.long_sources != "window":
            counts = np.where(beyond > 0, self.long_sources == "truncate", 1)
        rows, numbers = numbered(counts)
        return rows, heads[rows] + np.minimum(numbers * stride[rows], beyond[rows])


def numbered(counts: Ints) -> tuple[Ints, Ints]:
    """Return the number of each row as often as `counts` says, and 0, 1, 2, ... within the row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - (counts.cumsum() - counts)[rows]
