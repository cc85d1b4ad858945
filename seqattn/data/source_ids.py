"""Reading texts as ids, long ones in pieces, for training and generation alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqattn.data.options import LoaderOptions
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.tokens import EOS


class Headed(str):
    """A source whose first `head` characters begin each of its windows; `beside` it is a text."""

    head: int
    beside: str | None

    def __new__(cls, text: str, head: int, beside: str | None = None) -> "Headed":
        source = super().__new__(cls, text)
        source.head, source.beside = head, beside
        return source


LONGEST_WHOLE = 16_384
"""Longest source, in tokens, that generation reads whole; attention is quadratic in it."""


def pieces_of(ids: Sequence[int], options: LoaderOptions, head: int = 0) -> list[list[int]]:
    """Return the pieces in which a source (ids with the end mark) is read.

    Args:
        head: number of its first tokens that begin each window.

    Returns:
        The source itself if it fits; else no piece, its beginning, or its windows, each piece of
            `source_length` tokens with an end mark.
    """
    head = min(head, options.longest_head)
    starts = options.pieces(np.array([len(ids)]), np.array([head]))[1].tolist()
    return [[int(token) for token in piece(ids, options, start, head)] for start in starts]


def piece(ids: Any, options: LoaderOptions, start: int = 0, head: int = 0) -> Any:
    """Return a source if it fits; else its head, the tokens from `start` on, and an end mark."""
    longest = options.source_length
    if len(ids) <= longest:
        return ids
    part = ids[start : start + longest - 1 - head]
    return np.concatenate([ids[:head], part, [EOS]])


def read_sources(
    texts: Sequence[str], tokenizer: Tokenizer, options: LoaderOptions
) -> list[list[list[int]]]:
    """Return the ids of each text, in the pieces that a model reads in generation.

    Long sources that the options leave out of training are read whole.

    Returns:
        For each text one piece, or its windows; a blank text has one piece without ids.

    Raises:
        UserError: if a text to be read whole has more than `LONGEST_WHOLE` tokens.
    """
    read = []
    heads = tokens_before(texts, [getattr(text, "head", 0) for text in texts], tokenizer)
    for number, (row, head) in enumerate(zip(tokenizer.encode_source(texts), heads), 1):
        ids = row if texts[number - 1].strip() else []
        if options.long_sources != "drop":
            read.append(pieces_of(ids, options, head))
            continue
        if len(ids) > LONGEST_WHOLE:
            raise UserError(
                f"text {number:,} has {len(ids):,} tokens, but the maximum is {LONGEST_WHOLE:,}; "
                "split it, or train with loader.long_sources=truncate or window"
            )
        read.append([ids])
    return read


def tokens_before(texts: Sequence[str], offsets: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return the number of tokens of each source before the word at a character.

    No piece crosses the space before a word, so the text before it is tokenized separately. The
    pieces that begin every source count.
    """
    starts = [
        max(0, text.rfind(" ", 0, offset)) for text, offset in zip(texts, offsets, strict=True)
    ]
    prefixes = [str(text[:start]) for text, start in zip(texts, starts, strict=True) if start]
    lengths = iter([len(ids) - 1 for ids in tokenizer.encode_source(prefixes)])
    return [next(lengths) if start else len(tokenizer.source_begin) for start in starts]


def joined_source(tags: Sequence[str], texts: Sequence[str], mark: str) -> Headed:
    """Join several texts with a mark between them, after tags in "<>"."""
    head = "".join(f"<{tag}> " for tag in tags if tag)
    return Headed(head + mark.join(texts), len(head))
