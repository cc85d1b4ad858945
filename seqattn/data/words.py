"""Where words, numbers and signs begin and end, and which words of two texts are alike."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MATCHES = ("exact", "lower", "stem", "frequency")
"""What `match_words` says of a word."""
_STEM = 5


class Cut(NamedTuple):
    """A text cut into words.

    Attributes:
        text: the words with one space between them, which is what is tokenised.
        words: each of them.
        starts: (W,) where each begins in `text`.
        places: (characters of `text` + 1,) where each character stands in the original text; that
            of a space between words, and the last, is where the word before it ends.
    """

    text: str
    words: list[str]
    starts: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


def cut_words(text: str) -> Cut:
    """Cuts a text into runs of letters, runs of digits, and single other signs.

    Letters keep their combining marks; an ideograph is a word of its own, as in BERT's basic
    tokenizer (Devlin et al. 2019, arXiv 1810.04805).
    """
    words: list[str] = []
    starts: list[int] = []
    places: list[int] = []
    place = 0
    for kind, run in groupby(text, _kind):
        letters = "".join(run)
        pieces = list(letters) if kind == "sign" else [letters]
        for piece in pieces:
            if kind != "space":
                if words:
                    places.append(places[-1] + 1)
                words.append(piece)
                starts.append(len(places))
                places.extend(range(place, place + len(piece)))
            place += len(piece)
    places.append(places[-1] + 1 if places else 0)
    return Cut(" ".join(words), words, np.array(starts, np.int64), np.array(places, np.int64))


@lru_cache(maxsize=1 << 16)
def _kind(letter: str) -> str:
    if letter.isspace() or letter == "▁":  # sentencepiece's own sign for a space
        return "space"
    category = unicodedata.category(letter)
    if category == "Nd":
        return "digit"
    if (category[0] in "PSC" and category != "Cf") or "CJK" in unicodedata.name(letter, ""):
        return "sign"
    return "letter"


def match_words(context: Sequence[str], question: Sequence[str]) -> Floats:
    """Says how each word of a context meets a question (Chen et al. 2017, arXiv 1704.00051).

    Args:
        context: W words.
        question: any number of words.

    Returns:
        (W, 4) as `MATCHES` names them: 1 where the word is one of the question's, where it is in
        lower case, and where its first letters in lower case are (a stem for any language that
        changes words at their ends); and its share among the context's words in lower case, over
        the largest share there.
    """
    if not context:
        return np.zeros((0, len(MATCHES)), np.float32)
    lower = [word.lower() for word in context]
    asked = [word.lower() for word in question]
    exact, folded, stems = set(question), set(asked), {word[:_STEM] for word in asked}
    counts = Counter(lower)
    most = max(counts.values())
    columns: list[list[Any]] = [
        [word in exact for word in context],
        [word in folded for word in lower],
        [word[:_STEM] in stems for word in lower],
        [counts[word] / most for word in lower],
    ]
    return np.array(columns, np.float32).T
