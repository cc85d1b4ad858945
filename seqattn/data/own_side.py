"""Interface of a side of a tokenizer, for classes of one's own."""

import pydoc
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from seqattn.errors import UserError
from seqattn.tokens import RESERVED


class OwnSide(ABC):
    """Vocabulary of a side, with the methods of `Side`.

    Ids from 0 to `RESERVED` - 1 are the marks of `seqattn.tokens`: pad, unknown, begin and end.

    Args:
        model: the content of the tokenizer's file, such as its words.
    """

    languages: ClassVar[Mapping[str, str]] = {}
    begin: Sequence[int] = ()

    @abstractmethod
    def __init__(self, model: bytes) -> None: ...

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, each with the end mark; a blank text has only that."""

    @abstractmethod
    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode rows of ids; marks are omitted, unknown becomes "⁇"."""

    @abstractmethod
    def vocabulary(self) -> list[str]:
        """Return the piece of every id, the marks first; "▁" begins a word."""

    @property
    def size(self) -> int:
        """Number of pieces, marks included."""
        return len(self.vocabulary())

    def line_breaks(self) -> Literal["piece", "space", "unknown"]:
        """Encoding of line breaks: with "unknown", each line of a text is read separately."""
        return "unknown"

    def sample(
        self, texts: Sequence[str], alpha: float, randoms: Sequence[Random]
    ) -> list[list[int]]:
        """Encode texts with sampled segmentations; by default raise UserError."""
        raise UserError("loader.subword_sampling does not support this tokenizer; set it to null")

    def offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return ids without end, and their (begin, end) in characters, for questions."""
        raise UserError("this tokenizer has no offsets, which questions need")

    def texts(self) -> list[str]:
        """Return the text of every id, "" for marks."""
        names = [name.replace("▁", " ") for name in self.vocabulary()]
        return [""] * RESERVED + names[RESERVED:]

    def pieces(self, ids: Sequence[int], text: str | None = None) -> list[str]:
        """Return a label for each id of a text, for plots."""
        names = self.vocabulary()
        return [names[int(token)] for token in ids]


def own_side(path: str, trust: Collection[str]) -> type[OwnSide]:
    """Import the class that a tokenizer's file names.

    Raises:
        UserError: if its package is not trusted, or it is not a subclass of `OwnSide`.
    """
    if not any(path.startswith(f"{package}.") for package in trust):
        raise UserError(
            f"the tokenizer names {path}, which is not part of seqattn; load it with "
            f"trust=[{path.partition('.')[0]}] if you trust its author"
        )
    try:
        side: Any = pydoc.locate(path)
    except pydoc.ErrorDuringImport as error:
        raise UserError(f"cannot import {path}: {error.value}") from error
    if not isinstance(side, type) or not issubclass(side, OwnSide):
        raise UserError(f"the tokenizer names {path}, which is not a subclass of OwnSide")
    return side
