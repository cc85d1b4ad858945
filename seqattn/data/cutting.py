"""What becomes of a source that is too long: left out, cut short, or read in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seqattn.data.vocabulary import EOS
from seqattn.errors import UserError

Ints = npt.NDArray[np.int64]

HOW = ("drop", "truncate", "window")


@dataclass(frozen=True)
class LongSources:
    """A rule for sources beyond a length, the same in training and generation.

    Args:
        how: "drop" leaves them out; "truncate" keeps their first tokens; "window" reads them in
            windows of full length that overlap, of which the last ends where the source ends.
        maximum: tokens of what is read at once, the end mark counted, from 2.
        stride: tokens from one window's first to the next one's first, 1 to `maximum` - 1; None
            for half a window.

    Raises:
        UserError: another word, or a number outside its range.
    """

    how: str
    maximum: int
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise UserError(f"long_sources must be one of {', '.join(HOW)}, got {self.how!r}")
        if self.maximum < 2:
            raise UserError(f"max_source_length must be at least 2, got {self.maximum}")
        if self.stride is not None and not 1 <= self.stride < self.maximum:
            raise UserError(
                f"window_stride must be from 1 to {self.maximum - 1} (max_source_length without "
                f"the end mark), so that no token is left out, got {self.stride}"
            )

    def starts(self, length: int) -> list[int]:
        """Gives the first token of each piece of a source, none if it is left out.

        Args:
            length: the source's tokens, its end mark counted.
        """
        if length <= self.maximum:
            return [0]
        if self.how == "drop":
            return []
        if self.how == "truncate":
            return [0]
        stride = self.stride or max(1, (self.maximum - 1) // 2)
        last = length - self.maximum
        return [*range(0, last, stride), last]


def cut(ids: Sequence[int], rule: LongSources) -> list[list[int]]:
    """Gives the pieces in which a source is read.

    Args:
        ids: a source with its end mark.
        rule: what becomes of it if it is too long.

    Returns:
        The source as it is where it fits; else no piece, its beginning, or its windows, each
        piece of `rule.maximum` tokens with an end mark of its own.
    """
    if len(ids) <= rule.maximum:
        return [list(ids)]
    width = rule.maximum - 1
    return [[*ids[start : start + width], EOS] for start in rule.starts(len(ids))]


def pieces(lengths: Ints, rule: LongSources) -> tuple[Ints, Ints]:
    """Lists the pieces of many sources, as `cut` makes them.

    Args:
        lengths: (N,) the sources' tokens, end marks counted.
        rule: what becomes of those that are too long.

    Returns:
        (M,) the source of each piece, in order, and (M,) its first token.
    """
    if rule.how != "window":
        kept = np.flatnonzero((lengths <= rule.maximum) | (rule.how == "truncate"))
        return kept, np.zeros(len(kept), np.int64)
    starts = [rule.starts(length) for length in lengths.tolist()]
    counts = [len(found) for found in starts]
    return (
        np.repeat(np.arange(len(lengths)), counts),
        np.array([start for found in starts for start in found], np.int64),
    )
