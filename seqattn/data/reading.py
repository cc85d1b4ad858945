"""Texts as ids, the long ones in pieces, the same in training and generation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from seqattn.data.options import LoaderOptions, SpanOptions
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS

Ints = npt.NDArray[np.int64]

LONGEST_WHOLE = 16_384
"""Tokens of a source that generation reads whole; attention takes the square of them."""


def cut(ids: Sequence[int], options: LoaderOptions) -> list[list[int]]:
    """The pieces in which a source (ids with the end mark) is read.

    Returns:
        The source as it is where it fits; else no piece, its beginning, or its windows, each
        piece of `source_length` tokens with an end mark of its own.
    """
    if len(ids) <= options.source_length:
        return [list(ids)]
    width = options.source_length - 1
    return [[*ids[start : start + width], EOS] for start in options.starts(len(ids))]


def pieces(lengths: Ints, options: LoaderOptions | SpanOptions) -> tuple[Ints, Ints]:
    """Lists the pieces in which N texts are read.

    Args:
        lengths: (N,) their tokens.
        options: of the loader.

    Returns:
        (M,) the text of each piece, in order, and (M,) its first token.
    """
    starts = [options.starts(length) for length in lengths.tolist()]
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
    for number, row in enumerate(tokenizer.encode_source(texts), 1):
        ids = row if texts[number - 1].strip() else []
        if options.long_sources != "drop":
            read.append(cut(ids, options))
            continue
        if len(ids) > LONGEST_WHOLE:
            raise UserError(
                f"a text must have at most {LONGEST_WHOLE:,} tokens to be read whole, number "
                f"{number:,} has {len(ids):,}; split it, or train with long_sources=truncate or "
                "window"
            )
        read.append([ids])
    return read


def question_source(question: str, context: str) -> str:
    """The text from which a model writes an answer."""
    return f"question: {question} context: {context}"
