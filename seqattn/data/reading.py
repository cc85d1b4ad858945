"""Texts as ids, the long ones in pieces, the same in training and generation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from seqattn.data.options import LoaderOptions, SpanOptions
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS

Ints = npt.NDArray[np.int64]


class Headed(str):
    """A source whose first `head` characters are read again at the head of all its windows."""

    head: int

    def __new__(cls, text: str, head: int) -> "Headed":
        made = super().__new__(cls, text)
        made.head = head
        return made


LONGEST_WHOLE = 16_384
"""Tokens of a source that generation reads whole; attention takes the square of them."""


def cut(ids: Sequence[int], options: LoaderOptions, head: int = 0) -> list[list[int]]:
    """The pieces in which a source (ids with the end mark) is read.

    Args:
        head: tokens at its beginning that begin each window too.

    Returns:
        The source as it is where it fits; else no piece, its beginning, or its windows, each
        piece of `source_length` tokens with an end mark of its own.
    """
    head = options.head(head)
    starts = options.starts(len(ids), head)
    return [[int(token) for token in piece(ids, options, start, head)] for start in starts]


def piece(ids: Any, options: LoaderOptions, start: int = 0, head: int = 0) -> Any:
    """A source that fits as it is; else its head, what follows from `start` on, and an end mark."""
    longest = options.source_length
    if len(ids) <= longest:
        return ids
    part = ids[start : start + longest - 1 - head]
    return np.concatenate([ids[:head], part, [EOS]])


def pieces(
    lengths: Ints, options: LoaderOptions | SpanOptions, heads: Ints | None = None
) -> tuple[Ints, Ints]:
    """Lists the pieces in which N texts are read.

    Args:
        lengths: (N,) their tokens.
        heads: (N,) tokens of each that begin all its pieces; None for none.

    Returns:
        (M,) the text of each piece, in order, and (M,) its first token after the head.
    """
    each = np.zeros_like(lengths) if heads is None else heads
    starts = [options.starts(*pair) for pair in zip(lengths.tolist(), each.tolist(), strict=True)]
    texts = np.repeat(np.arange(len(lengths)), list(map(len, starts)))
    return texts, np.array([start for found in starts for start in found], np.int64)


def read_sources(
    texts: Sequence[str], tokenizer: Tokenizer, options: LoaderOptions
) -> list[list[list[int]]]:
    """The ids of each text in the pieces in which a model reads it when it generates.

    Where the options leave long sources out of training, they are read whole here.

    Returns:
        For each text one piece, or its windows; a text of white space has one piece of no ids.

    Raises:
        UserError: a text to be read whole has more than `LONGEST_WHOLE` tokens.
    """
    read = []
    heads = tokens_before(texts, [getattr(text, "head", 0) for text in texts], tokenizer)
    for number, (row, head) in enumerate(zip(tokenizer.encode_source(texts), heads), 1):
        ids = row if texts[number - 1].strip() else []
        if options.long_sources != "drop":
            read.append(cut(ids, options, head))
            continue
        if len(ids) > LONGEST_WHOLE:
            raise UserError(
                f"a text must have at most {LONGEST_WHOLE:,} tokens to be read whole, number "
                f"{number:,} has {len(ids):,}; split it, or train with long_sources=truncate or "
                "window"
            )
        read.append([ids])
    return read


def tokens_before(texts: Sequence[str], places: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """How many tokens of each source stand before the word that has one of its characters.

    No piece crosses the space before a word, so the text up to there has these tokens alone.
    """
    starts = [max(0, text.rfind(" ", 0, place)) for text, place in zip(texts, places, strict=True)]
    begun = [str(text[:start]) for text, start in zip(texts, starts, strict=True) if start]
    lengths = iter([len(ids) - 1 for ids in tokenizer.encode_source(begun)])
    return [next(lengths) if start else 0 for start in starts]


def question_source(question: str, context: str) -> Headed:
    """The text from which a model writes an answer; its windows all begin with the question."""
    head = f"question: {question} context: "
    return Headed(head + context, len(head))


def joined_source(tags: Sequence[str], texts: Sequence[str], mark: str) -> Headed:
    """A source of several texts with a mark between them, tags in "<>" before them."""
    head = "".join(f"<{tag}> " for tag in tags if tag)
    return Headed(head + mark.join(texts), len(head))
