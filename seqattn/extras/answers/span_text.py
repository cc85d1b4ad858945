"""Texts as words and as ids with character offsets, and answers as spans of ids."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqattn.data.tokenizer import Tokenizer
from seqattn.tokens import EOS

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float32]

MATCHES = ("exact", "lower", "stem", "frequency")
"""Names of the features from `match_words`."""
STEM = 5
_SPELT = 16
_CODES = 511


class Cut(NamedTuple):
    """A text cut into words.

    Attributes:
        text: the words joined by single spaces; this is tokenized.
        words: the words.
        starts: (W,) offset of each word in `text`.
        places: (characters of `text` + 1,) offset of each character in the original text; for a
            space between words, and the last entry, the end of the word before it.
    """

    text: str
    words: list[str]
    starts: Ints
    places: Ints


def cut_words(text: str) -> Cut:
    """Split a text into runs of letters, runs of digits, and other single characters.

    Letters keep their combining marks; an ideograph is a word of its own, as in BERT's basic
    tokenizer (Devlin et al. 2019, arXiv 1810.04805).
    """
    words: list[str] = []
    starts: list[int] = []
    offsets: list[int] = []
    offset = 0
    for kind, run in groupby(text, _kind):
        for piece in run if kind == "sign" else ["".join(run)]:
            if kind != "space":
                if words:
                    offsets.append(offsets[-1] + 1)
                words.append(piece)
                starts.append(len(offsets))
                offsets.extend(range(offset, offset + len(piece)))
            offset += len(piece)
    offsets.append(offsets[-1] + 1 if offsets else 0)
    return Cut(" ".join(words), words, np.array(starts, np.int64), np.array(offsets, np.int64))


@lru_cache(maxsize=1 << 16)
def _kind(letter: str) -> str:
    if letter.isspace() or letter == "▁":  # sentencepiece's character for a space
        return "space"
    category = unicodedata.category(letter)
    if category == "Nd":
        return "digit"
    if (category[0] in "PSC" and category != "Cf") or "CJK" in unicodedata.name(letter, ""):
        return "sign"
    return "letter"


def match_words(context: Sequence[str], question: Sequence[str]) -> Floats:
    """Match the W words of a context with a question (Chen et al. 2017, arXiv 1704.00051).

    Returns:
        (W, 4) in the order of `MATCHES`: 1 if the word is in the question exactly, in lower case,
            or by its first letters in lower case (a stem in languages that inflect word endings);
            and its frequency in the context in lower case, divided by the largest one.
    """
    lower = [word.lower() for word in context]
    lowercase = [word.lower() for word in question]
    exact, folded, stems = set(question), set(lowercase), {word[:STEM] for word in lowercase}
    counts = Counter(lower)
    max_count = max(counts.values(), default=1)
    columns: list[Iterable[float]] = [
        map(exact.__contains__, context),
        map(folded.__contains__, lower),
        (word[:STEM] in stems for word in lower),
        (counts[word] / max_count for word in lower),
    ]
    return np.stack([np.fromiter(column, np.float32, len(lower)) for column in columns], axis=1)


def spell_words(rows: Sequence[Sequence[str]]) -> Ints:
    """Return code points of words modulo 511, plus 1, as (B, W, L); 0 beyond a word's end.

    Args:
        rows: B lists of up to W words; the first 16 characters of each are read (L is the longest
            length, at least 1). Rare characters may collide, as in CANINE's hashing (Clark et
            al. 2022, arXiv 2103.06874).
    """
    longest = max((len(word) for row in rows for word in row), default=1)
    spelt = np.zeros((len(rows), max(map(len, rows)), min(max(longest, 1), _SPELT)), np.int64)
    for number, row in enumerate(rows):
        for index, word in enumerate(row):
            spelt[number, index, : len(word)] = [1 + ord(c) % _CODES for c in word[:_SPELT]]
    return spelt


class ReadText(NamedTuple):
    """A text as S ids.

    Attributes:
        ids: (S,) without marks.
        begins: (S,) the character of the original text where each begins.
        ends: (S,) the character after its last; equal to `begins` for an empty token.
        word: (S,) the index of the word of each id.
        words: the W words.
    """

    ids: Ints
    begins: Ints
    ends: Ints
    word: Ints
    words: list[str]

    def cut(self, longest: int) -> "ReadText":
        """Truncate to `longest` tokens, keeping the last one (the end mark)."""
        if len(self.ids) <= longest:
            return self
        selected = [*range(longest - 1), -1]
        ids, begins, ends, word, words = self
        return ReadText(ids[selected], begins[selected], ends[selected], word[selected], words)


class TokenSpan(NamedTuple):
    """First and last token of an answer; `exact` if they cover it exactly."""

    first: int
    last: int
    exact: bool


class TextReader:
    """Reader of questions and contexts, with the source side of a tokenizer.

    Texts are first split into words, numbers and punctuation, so that no piece crosses the border
    of an answer of whole words.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def context(self, text: str) -> ReadText:
        """Return the ids of a context, without marks."""
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
        """Return the ids of a question, with the end mark."""
        ids, begins, ends, word, words = self.context(text)
        begins, ends = (np.append(offsets, len(text)) for offsets in (begins, ends))
        return ReadText(np.append(ids, EOS), begins, ends, np.append(word, len(words)), words)


def find_span(text: ReadText, start: int, end: int) -> TokenSpan | None:
    """Return the smallest token span over the characters from `start` up to `end`, exclusive.

    None if no token covers any of them.
    """
    # empty tokens can neither begin nor end an answer
    meets = np.flatnonzero((text.begins < end) & (text.ends > start) & (text.ends > text.begins))
    if len(meets) == 0:
        return None
    first, last = int(meets[0]), int(meets[-1])
    is_exact = int(text.begins[first]) == start and int(text.ends[last]) == end
    return TokenSpan(first, last, is_exact)


def trimmed(answer: str, start: int) -> tuple[int, int]:
    """Return the start and end of an answer at `start`, without surrounding spaces."""
    begin = start + len(answer) - len(answer.lstrip())
    return begin, max(begin, start + len(answer.rstrip()))
