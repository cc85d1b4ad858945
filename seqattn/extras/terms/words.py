"""Occurrences of terms as whole words, and texts of pieces."""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.prefixes import Prefixes
from seqattn.data.tokenizer import Tokenizer
from seqattn.metrics.scripts import script_words
from seqattn.tokens import PAD, UNK


@lru_cache(maxsize=1 << 16)
def in_word(character: str) -> bool:
    """Return True for letters, digits and marks of scripts with spaces between words."""
    kind = unicodedata.category(character)[0]
    return kind == "M" or (kind in "LN" and len(script_words(character * 2)) == 1)


def begins(text: str, term: str, place: int) -> bool:
    """Return True if a term at a place of a text does not begin within a word."""
    return place == 0 or not (in_word(text[place - 1]) and in_word(term[0]))


def occurrences(text: str, term: str) -> Iterator[int]:
    """Yield the places of a text where a term stands as whole words."""
    place = text.find(term)
    while place >= 0:
        end = place + len(term)
        ended = end == len(text) or not (in_word(text[end]) and in_word(term[-1]))
        if ended and begins(text, term, place):
            yield place
        place = text.find(term, place + 1)


class Lexicon:
    """Texts of the pieces of a target vocabulary.

    Args:
        texts: text of each piece, as a part of an output.
        after: ids of the end, and of all other pieces that continue no word.
    """

    def __init__(self, texts: list[str], after: Any) -> None:
        self.texts, self.after = texts, after
        self.folded = [text.casefold() for text in texts]

    @classmethod
    def of(cls, bundle: Bundle) -> "Lexicon":
        """Return the lexicon of a bundle, made once."""
        tokenizer = bundle.tokenizer
        if tokenizer not in _LEXICONS:
            ids = range(len(tokenizer.target_vocabulary()))
            framed = tokenizer.decode_target([[UNK, UNK], *([UNK, number, UNK] for number in ids)])
            names = zip(tokenizer.target_pieces(ids), framed[1:], strict=True)
            texts = ["" if one == framed[0] else name.replace("▁", " ") for name, one in names]
            texts[UNK] = "⁇"
            silent = [number for number in ids if not texts[number]]  # such as marks
            after = np.setdiff1d([*Prefixes(tokenizer).after_words, *silent, UNK], [PAD])
            _LEXICONS[tokenizer] = cls(texts, after)
        return _LEXICONS[tokenizer]


_LEXICONS: "WeakKeyDictionary[Tokenizer, Lexicon]" = WeakKeyDictionary()
