"""Occurrences of terms as whole words, and texts of pieces."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import groupby, zip_longest
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


def boundary(text: str, place: int) -> bool:
    """Return True if no word goes on across a place of a text."""
    return not (0 < place < len(text) and in_word(text[place - 1]) and in_word(text[place]))


def occurrences(text: str, term: str) -> Iterator[int]:
    """Yield the places of a text where a term stands as whole words."""
    place = text.find(term)
    while place >= 0:
        if boundary(text, place) and boundary(text, place + len(term)):
            yield place
        place = text.find(term, place + 1)


class Index:
    """Terms by their first word, to find all that a text has.

    Args:
        terms: values by term, none of which is empty.
    """

    def __init__(self, terms: Mapping[str, Any]) -> None:
        self.terms, self.sizes = terms, defaultdict[str, set[int]](set)
        for term in self.terms:
            _, first = next(_words(term))
            self.sizes[first].add(len(term))

    def found(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield places of a text where terms stand as whole words, each with its term."""
        for place, word in _words(text):
            for end in (place + size for size in self.sizes.get(word, ())):
                term = text[place:end]
                if end <= len(text) and term in self.terms and boundary(text, end):
                    yield place, term


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words of a text, and its other characters one by one, each with its place."""
    place = 0
    for inside, run in groupby(text, in_word):
        for part in ["".join(run)] if inside else run:
            yield place, part
            place += len(part)


class Lexicon:
    """Texts of the pieces of a target vocabulary.

    Args:
        texts: text of each piece, as a part of an output.
        after: ids of the end, and of all other pieces that continue no word.
    """

    def __init__(self, texts: list[str], after: Any) -> None:
        self.texts, self.after = texts, after
        self.folded = [text.casefold() for text in texts]
        self._endings: dict[bool, dict[str, set[int]]] = {}

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

    def endings(self, fold: bool) -> dict[str, set[int]]:
        """Return the pieces in which a word ends after a character, by that character."""
        if fold not in self._endings:
            found = self._endings[fold] = defaultdict(set)
            for number, piece in enumerate(self.folded if fold else self.texts):
                for one, after in zip_longest(piece, piece[1:]):
                    if not in_word(one) or (after and not in_word(after)):
                        found[one].add(number)
        return self._endings[fold]


_LEXICONS: "WeakKeyDictionary[Tokenizer, Lexicon]" = WeakKeyDictionary()
