"""Occurrences of terms as whole words, and texts of pieces."""

import re
from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import groupby, zip_longest
from typing import Any
from unicodedata import normalize
from weakref import WeakKeyDictionary

import numpy as np

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.prefixes import Prefixes
from seqattn.data.text_lines import INVISIBLE
from seqattn.data.tokenizer import Tokenizer
from seqattn.metrics.scripts import in_word
from seqattn.tokens import UNK

BYTES = "".join(map(chr, range(0xDC80, 0xDD00)))
"""Bytes of a character, as in `Tokenizer.target_texts`."""
_UNSEEN = f"{INVISIBLE}\u200e\u200f"
_ODD = re.compile(rf"[\s{_UNSEEN}]{{2,}}|[^\S ]|[\u2019{_UNSEEN}]")
_RUN = re.compile(f"[{BYTES}]+")


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


def plain(text: str, fold: bool) -> str:
    """Return a text as it is compared: in NFC, with single spaces and straight apostrophes, without
    invisible characters, and casefolded if `fold`."""
    text = _ODD.sub(lambda one: "'" if one[0] == "\u2019" else one[0].strip(_UNSEEN) and " ", text)
    return normalize("NFC", text.casefold() if fold else text)


def spelled(text: str, fold: bool) -> str:
    """Return a plain text whose bytes are characters, unless one is unfinished at its end."""
    return plain(_RUN.sub(_characters, text), fold)


def _characters(run: re.Match[str]) -> str:
    decoder, inside = getincrementaldecoder("utf-8")("replace"), run.end() < len(run.string)
    text = decoder.decode(run[0].encode("utf-8", "surrogateescape"), inside)
    return text + decoder.getstate()[0].decode("utf-8", "surrogateescape")


class Index:
    """Terms by their first word, to find all that a text has.

    Args:
        terms: the terms.
        fold: applied to terms and texts before they are compared; it leaves no term empty.
    """

    def __init__(self, terms: Iterable[str], fold: Callable[[str], str]) -> None:
        self.fold, self.sizes = fold, defaultdict[str, set[int]](set)
        self.terms = defaultdict[str, list[str]](list)
        for term in terms:
            folded = fold(term)
            self.terms[folded].append(term)
            self.sizes[next(_words(folded))[1]].add(len(folded))

    def found(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield places of a text where terms stand as whole words, each with its term."""
        text = self.fold(text)
        for place, word in _words(text):
            for end in (place + size for size in self.sizes.get(word, ())):
                if end <= len(text) and text[place:end] in self.terms and boundary(text, end):
                    yield from ((place, term) for term in self.terms[text[place:end]])


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
        texts: text of each piece, as a part of an output; bytes as in `Tokenizer.target_texts`.
        after: ids of the end, and of all other pieces that continue no word.
    """

    def __init__(self, texts: list[str], after: Any) -> None:
        self.texts, self.after = texts, after
        self.bytes = {number for number, text in enumerate(texts) if _RUN.match(text)}

    @classmethod
    def of(cls, bundle: Bundle) -> "Lexicon":
        """Return the lexicon of a bundle, made once."""
        tokenizer = bundle.tokenizer
        if tokenizer not in _LEXICONS:
            texts = tokenizer.target_texts()
            texts[UNK] = "⁇"
            _LEXICONS[tokenizer] = cls(texts, np.append(Prefixes(tokenizer).after_words, UNK))
        return _LEXICONS[tokenizer]

    def text(self, ids: Iterable[int], fold: bool = False) -> str:
        """Return the text of an output, casefolded if `fold`."""
        return spelled("".join([self.texts[token] for token in ids]), fold)

    @cached_property
    def endings(self) -> dict[str, set[int]]:
        """Pieces within which a word ends after a character, by that character, also casefolded."""
        found = defaultdict[str, set[int]](set)
        for number, text in enumerate(self.texts):
            for piece in {plain(text, False), plain(text, True)}:
                for one, after in zip_longest(piece, piece[1:]):
                    if not in_word(one) or (after and not in_word(after)):
                        found[one].add(number)
        return found


_LEXICONS: "WeakKeyDictionary[Tokenizer, Lexicon]" = WeakKeyDictionary()
