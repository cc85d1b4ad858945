"""How texts become batches: what fits, what is cut, what is left out."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.roles import Role

Length = Annotated[int, Ge(2), Le(10**6)]
"""Tokens that are read together, the end mark among them."""


@dataclass(frozen=True)
class BatchLimits:
    """How large a batch may be, and who prepares it.

    Args:
        max_tokens: bound on rows x the longest row of either side, marks and padding counted.
        max_rows: bound on rows; None for none.
        max_square: bound on rows x (longest row of either side) squared, which is what attention
            weights take in memory; None for none.
        step_batches: batches of an optimizer step over all ranks, whose number divides it; None
            for as many as the ranks accumulate together.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, from which a GPU copies while others compute; None for
            where training is on a CUDA GPU.
    """

    batches: ClassVar[str]
    """What a task must learn from to use these options."""

    max_tokens: Count = 4096
    max_rows: Count | None = None
    max_square: Count | None = None
    step_batches: Count | None = None
    num_workers: Annotated[int, Ge(0), Le(256), Role.NOTE] = 0
    pin_memory: Annotated[bool | None, Role.NOTE] = None

    @property
    @abstractmethod
    def longest_row(self) -> tuple[str, int]:
        """The key that bounds the length of a row, and tokens of the longest row."""

    def rows(self, length: int) -> int:
        """How many rows of `length` tokens fit, 0 if not even one does."""
        most = self.max_tokens // length
        if self.max_rows is not None:
            most = min(most, self.max_rows)
        if self.max_square is not None:
            most = min(most, self.max_square // length**2)
        return most

    def check_holds(self, length: int, what: str, advice: str = "") -> None:
        """Refuses limits that do not hold a row of `length` tokens, which is `what`."""
        if self.rows(length) < 1:
            raise UserError(
                f"max_tokens and max_square must hold {what}, "
                f"got {self.max_tokens} and {self.max_square}{advice}"
            )


@dataclass(frozen=True)
class LoaderOptions(BatchLimits):
    """How batches of pairs are made.

    Args:
        max_tokens, max_rows, max_square, step_batches, num_workers, pin_memory: as `BatchLimits`.
        max_length: pairs with more tokens on either side (the end mark counted) are left out.
        long_sources: what becomes of sources that are too long: "drop" leaves their pairs out,
            "truncate" keeps their first tokens, "window" makes a pair with the same target of
            each of their windows, which overlap and are full, the last ending where they end; a
            head, such as the question on a context, begins them all.
        max_source_length: tokens of a source that are read at once, the end mark counted, while
            `max_length` bounds the target; None for `max_length`.
        window_stride: tokens from one window's first to the next one's; None for half a window.
        subword_sampling: cut training texts into pieces by chance, anew each epoch. For a unigram
            vocabulary the power of a segmentation's probability with which it is drawn (0.1 to
            0.5, lower is more varied); for BPE the share of merges left out (0.1). None for never.
            Batches may then exceed `max_tokens`, since such pieces are shorter.

    Raises:
        UserError: a length beyond `max_tokens`, or a stride without windows or beyond them.
    """

    batches: ClassVar[str] = "pairs"

    max_length: Length = 256
    long_sources: Literal["drop", "truncate", "window"] = "drop"
    max_source_length: Length | None = None
    window_stride: int | None = None
    subword_sampling: Annotated[float, Gt(0), Lt(1)] | None = None

    def __post_init__(self) -> None:
        stride, source = self.window_stride, self.source_length
        if stride is not None and self.long_sources != "window":
            raise UserError(
                f"window_stride must go with long_sources=window, got {self.long_sources}"
            )
        name, longest = self.longest_row
        self.check_holds(longest, f"a row of {name} ({longest}) tokens")
        if stride is not None and not 1 <= stride < source:
            raise UserError(
                f"window_stride must be from 1 to {source - 1} (max_source_length without "
                f"the end mark), so that no token is left out, got {stride}"
            )

    @property
    def longest_row(self) -> tuple[str, int]:
        longest = max(self.max_length, self.source_length)
        return "max_length" if longest == self.max_length else "max_source_length", longest

    @property
    def source_length(self) -> int:
        """Tokens of a source that are read at once, the end mark counted."""
        return self.max_source_length or self.max_length

    def head(self, tokens: int) -> int:
        """Tokens of a head of so many that begin each window: half a window at most."""
        if self.long_sources != "window":
            return 0
        return min(tokens, self.source_length // 2, self.source_length - 2)

    def starts(self, tokens: int, head: int = 0) -> Sequence[int]:
        """The first token, after its head, of each piece of a source.

        Args:
            tokens: of the source, its end mark counted.
            head: of them, those that begin each piece.
        """
        beyond = tokens - self.source_length
        if beyond > 0 and self.long_sources == "drop":
            return []
        if beyond <= 0 or self.long_sources == "truncate":
            return [head]
        room = self.source_length - head - 1
        stride = min(self.window_stride or max(1, room // 2), room)
        return [*range(head, head + beyond, stride), head + beyond]


@dataclass(frozen=True)
class SpanOptions(BatchLimits):
    """How batches of questions, each with a window of its context, are made.

    Args:
        max_tokens, max_rows, max_square, step_batches, num_workers, pin_memory: as `BatchLimits`;
            a row is a window and its question.
        window: tokens of a context that are read together; a longer context is read in windows.
        stride: tokens from a window's first to the next one's first; windows overlap by the rest.
        max_question: tokens of a question, the end mark counted; longer ones are left out of
            training and cut elsewhere.

    Raises:
        UserError: a stride beyond the window, or a window or question that no batch can hold.
    """

    batches: ClassVar[str] = "spans"

    max_tokens: Count = 8192
    window: Count = 384
    stride: Count = 192
    max_question: Length = 64

    def __post_init__(self) -> None:
        if self.stride > self.window:
            raise UserError(
                f"stride must be at most window ({self.window}), so that no token is left out, "
                f"got {self.stride}"
            )
        longest = self.longest_row[1]
        self.check_holds(longest, f"a window or question of {longest} tokens")

    @property
    def longest_row(self) -> tuple[str, int]:
        return "window", max(self.window, self.max_question)

    def starts(self, tokens: int, head: int = 0) -> Sequence[int]:
        """The first token of each window of a context, which has no head; one of an empty one."""
        return range(0, max(0, tokens - self.window) + self.stride, self.stride)
