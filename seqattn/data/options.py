"""How pairs of texts become batches: what fits, what is cut, what is left out."""

from __future__ import annotations

from dataclasses import dataclass

from seqattn.data.bucketing import BatchLimits
from seqattn.data.cutting import LongSources
from seqattn.data.tokens import TokenDataset
from seqattn.errors import UserError


@dataclass(frozen=True)
class LoaderOptions:
    """How batches are made.

    Args:
        max_tokens: tokens in a batch at most: rows x the longest row of either side.
        max_length: pairs with more tokens on either side (the end mark counted) are left out.
        max_rows: pairs in a batch at most; None for no bound.
        max_square: bound on rows x (longest row) squared, which attention's weights grow with;
            None for no bound.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, of use with a GPU only.
        long_sources: what becomes of sources that are too long: "drop" leaves their pairs out,
            "truncate" keeps their first tokens, "window" makes a pair with the same target of
            each of their windows.
        max_source_length: tokens of a source that are read at once, the end mark counted, while
            `max_length` bounds the target; None for `max_length`.
        window_stride: tokens from one window's first to the next one's; None for half a window.

    Raises:
        UserError: a bound below 1, a length beyond `max_tokens`, another word for `long_sources`,
            or a stride without windows.
    """

    max_tokens: int = 4096
    max_length: int = 256
    max_rows: int | None = None
    max_square: int | None = None
    num_workers: int = 0
    pin_memory: bool = False
    long_sources: str = "drop"
    max_source_length: int | None = None
    window_stride: int | None = None

    def __post_init__(self) -> None:
        limits = self.limits
        if self.max_length < 2:
            raise UserError(f"max_length must be at least 2, got {self.max_length}")
        if self.num_workers < 0:
            raise UserError(f"num_workers must be at least 0, got {self.num_workers}")
        if self.window_stride is not None and self.long_sources != "window":
            raise UserError(
                f"window_stride must go with long_sources=window, got {self.long_sources}"
            )
        longest = max(self.max_length, self.sources.maximum)
        if limits.rows(longest) < 1:
            name = "max_length" if longest == self.max_length else "max_source_length"
            raise UserError(
                f"max_tokens and max_square must hold a row of {name} ({longest}) "
                f"tokens, got {self.max_tokens} and {self.max_square}"
            )

    @property
    def limits(self) -> BatchLimits:
        """The part that bounds a batch."""
        return BatchLimits(self.max_tokens, self.max_rows, self.max_square)

    @property
    def sources(self) -> LongSources:
        """The part that says what becomes of long sources; `cut` does the same to one source."""
        maximum = self.max_length if self.max_source_length is None else self.max_source_length
        return LongSources(self.long_sources, maximum, self.window_stride)

    def account(self, dataset: TokenDataset, split: str) -> list[str]:
        """Says what was left out of a split and what was cut, a phrase for each.

        Args:
            dataset: made with these options.
            split: its name.
        """
        dropped, total, maximum = dataset.dropped, dataset.total, self.sources.maximum
        beyond = f"longer than {self.max_length} tokens"
        if self.long_sources != "drop":
            beyond = f"with a target {beyond}"
        elif maximum != self.max_length:
            beyond = f"with a source beyond {maximum} or a target beyond {self.max_length} tokens"
        phrases = [f"kept all {total:,} {split} pairs"]
        if dropped.long + dropped.empty:
            phrases = [
                f"dropped {dropped.long + dropped.empty:,} of {total:,} {split} pairs: "
                f"{dropped.long:,} {beyond}, {dropped.empty:,} with an empty side"
            ]
        if dataset.cut:
            what = f"to their first {maximum} tokens"
            if self.long_sources == "window":
                what = f"into {dataset.pieces:,} windows of {maximum} tokens"
            share = 100 * dataset.cut / total
            phrases.append(f"cut {dataset.cut:,} sources ({share:.1f} %) {what}")
        return phrases
