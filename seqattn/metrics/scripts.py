"""Words of scripts other than Latin, and texts without spaces between words."""

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "BOPOMOFO ")
"""How the names of characters begin whose scripts put no space between words."""
_LONGEST = 4
"""Letters that a word of such a script has at most, on average over a corpus."""
_JOINERS = "\u200c\u200d"


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> Literal["latin", "other", "unspaced", "mark", ""]:
    """Whose a letter or digit is: Latin, another script's, one's without spaces; a mark on the
    letter before it; or no part of a word."""
    category, name = unicodedata.category(character)[0], unicodedata.name(character, "")
    if category == "M" or character in _JOINERS:
        return "mark"
    if category not in "LN":
        return ""
    if name.startswith(_UNSPACED):
        return "unspaced"
    return "latin" if name.startswith(("LATIN ", "DIGIT ")) else "other"


def other_script(texts: Iterable[str]) -> bool:
    """True if most letters of the texts are of other scripts than Latin."""
    balance = 0
    for text in texts:
        if text.isascii():
            balance -= len(text)
        else:
            kinds = [_kind(character) for character in text if character.isalpha()]
            balance += len(kinds) - 2 * kinds.count("latin")
    return balance > 0


def script_words(text: str) -> list[str]:
    """Words in lower case: runs of letters and digits with their marks, and each single letter of
    a script without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese)."""
    words: list[str] = []
    before = ""
    for character in text.lower():
        kind = _kind(character)
        if before and (kind == "mark" or ("unspaced" not in (before, kind) and kind)):
            words[-1] += character
            continue
        before = "" if kind == "mark" else kind
        if before:
            words.append(character)
    return words


def unsplit(texts: Iterable[str]) -> bool:
    """True if most words between spaces are runs of letters of a script without spaces."""
    letters = words = others = 0
    for text in texts:
        for word in text.split():
            found = sum(_kind(character) == "unspaced" for character in word)
            letters, words, others = letters + found, words + (found > 0), others + (found == 0)
    return words > others and letters > _LONGEST * words
