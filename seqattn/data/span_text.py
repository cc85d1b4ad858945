"""Texts as ids that know which characters they stand for, and answers as runs of such ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seqattn.data.tokenizer import EOS, Tokenizer
from seqattn.data.words import cut_words

Ints = npt.NDArray[np.int64]


class ReadText(NamedTuple):
    """A text as S ids.

    Attributes:
        ids: (S,) without marks.
        begins: (S,) the character of the original text where each begins.
        ends: (S,) the character after its last; its beginning where it stands for none.
        word: (S,) the number of the word that each belongs to.
        words: the W words.
    """

    ids: Ints
    begins: Ints
    ends: Ints
    word: Ints
    words: list[str]


class TokenSpan(NamedTuple):
    """From the first to the last token of an answer; `exact` if they hold it and nothing more."""

    first: int
    last: int
    exact: bool


class TextReader:
    """Reads questions and contexts.

    Texts are cut into words, numbers and signs first, so that no piece reaches over the border of
    an answer that is made of whole words.

    Args:
        tokenizer: whose source side reads.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def context(self, text: str) -> ReadText:
        """Gives a context's ids, without marks."""
        cut = cut_words(text)
        ids, offsets = self.tokenizer.source_offsets([cut.text])[0]
        spans = np.array(offsets, np.int64).reshape(-1, 2)
        begins, ends = spans[:, 0], spans[:, 1]
        spaces = np.array([letter == " " for letter in cut.text] + [False])
        begins = np.where((begins < ends) & spaces[begins], begins + 1, begins)
        word = np.searchsorted(cut.starts, begins, side="right") - 1
        return ReadText(
            np.array(ids, np.int64), cut.places[begins], cut.places[ends], word, cut.words
        )

    def question(self, text: str) -> ReadText:
        """Gives a question's ids, with the end mark after them."""
        read = self.context(text)
        end = len(text)
        return read._replace(
            ids=np.append(read.ids, EOS),
            begins=np.append(read.begins, end),
            ends=np.append(read.ends, end),
            word=np.append(read.word, len(read.words)),
        )


def find_span(text: ReadText, start: int, end: int) -> TokenSpan | None:
    """Gives the smallest run of tokens that covers the characters from `start` up to `end`.

    Args:
        text: that holds them.
        start: a character.
        end: the character after the last.

    Returns:
        The run; None where no token stands for any of these characters.
    """
    # tokens that stand for nothing can neither begin nor end an answer
    meets = np.flatnonzero((text.begins < end) & (text.ends > start) & (text.ends > text.begins))
    if len(meets) == 0:
        return None
    first, last = int(meets[0]), int(meets[-1])
    exact = int(text.begins[first]) == start and int(text.ends[last]) == end
    return TokenSpan(first, last, exact)


def vocabulary_texts(texts: Iterable[str]) -> list[str]:
    """Gives each different text as it is tokenised, in their first order: what to train on."""
    return [cut_words(text).text for text in dict.fromkeys(texts)]


def trimmed(answer: str, start: int) -> tuple[int, int]:
    """Gives where an answer that stands at `start` begins and ends, spaces around it left out."""
    begin = start + len(answer) - len(answer.lstrip())
    return begin, max(begin, start + len(answer.rstrip()))
