"""Word splitting for scripts other than Latin, and texts without spaces between words."""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Literal

_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "BOPOMOFO ")
"""Prefixes of Unicode names of characters in scripts without spaces between words."""
_LONGEST = 4
"""Maximum average letters per word in such a script; texts with longer words count as unsplit."""
_JOINERS = "\u200c\u200d"


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> Literal["latin", "other", "unspaced", "mark", ""]:
    """Classify a character: Latin, another script, a script without spaces, a mark on the letter
    before it, or "" if not part of a word."""
    category, name = unicodedata.category(character)[0], unicodedata.name(character, "")
    if category == "M" or character in _JOINERS:
        return "mark"
    if category not in "LN":
        return ""
    if name.startswith(_UNSPACED):
        return "unspaced"
    return "latin" if name.startswith(("LATIN ", "DIGIT ")) else "other"


def in_word(character: str) -> bool:
    """Return True for letters, digits, marks and joiners of scripts with spaces between words, and
    for bytes of a character as lone surrogates."""
    return _kind(character) not in ("", "unspaced") or "\udc80" <= character <= "\udcff"


def other_script(text: str) -> bool:
    """Return True if most letters are not Latin, or if it has words but none with a-z or 0-9."""
    if text.isascii():
        return False
    others = [_kind(character) != "latin" for character in text if character.isalpha()]
    if sum(others) * 2 > len(others):
        return True
    return bool(script_words(text)) and not any(one.isascii() and one.isalnum() for one in text)


def script_words(text: str) -> list[str]:
    """Split into lowercase words: runs of letters and digits with their marks, and single letters
    of scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese)."""
    words: list[list[str]] = []
    before = ""
    for character in text.lower():
        kind = _kind(character)
        if before and (kind == "mark" or ("unspaced" not in (before, kind) and kind)):
            words[-1].append(character)
            continue
        before = "" if kind == "mark" else kind
        if before:
            words.append([character])
    return ["".join(word) for word in words]


def split_words(text: str) -> list[str]:
    """Split at spaces, and between letters of scripts without spaces between words.

    Punctuation stays with the word before it.
    """
    return [word for run in text.split() for word in _parts(run)]


def _parts(run: str) -> tuple[str, ...]:
    """Split a run of characters that are not spaces; see `split_words`."""
    if run.isascii():
        return (run,)
    begins, before = [0], ""
    for place, character in enumerate(run):
        kind = _kind(character)
        if kind in ("", "mark"):
            continue
        if before and "unspaced" in (before, kind):
            begins.append(place)
        before = kind
    return tuple(run[begin:end] for begin, end in pairwise([*begins, len(run)]))


def unsplit(texts: Iterable[str]) -> bool:
    """Return True if most space-separated words are runs of letters of a script without spaces."""
    letters = words = others = 0
    for text in texts:
        for word in text.split():
            count = sum(_kind(character) == "unspaced" for character in word)
            letters, words, others = letters + count, words + (count > 0), others + (count == 0)
    return words > others and letters > _LONGEST * words
