"""Texts as words and as ids that know their characters, and answers as runs of such ids."""

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
"""What `match_words` says of a word."""
STEM = 5
_SPELT = 16
_CODES = 511


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
    starts: Ints
    places: Ints


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
        for piece in run if kind == "sign" else ["".join(run)]:
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
    """Says how each of W words of a context meets a question (Chen et al. 2017, arXiv 1704.00051).

    Returns:
        (W, 4) as `MATCHES` names them: 1 where the word is one of the question's, where it is in
        lower case, and where its first letters in lower case are (a stem for any language that
        changes words at their ends); and its share among the context's words in lower case, over
        the largest share there.
    """
    lower = [word.lower() for word in context]
    asked = [word.lower() for word in question]
    exact, folded, stems = set(question), set(asked), {word[:STEM] for word in asked}
    counts = Counter(lower)
    most = max(counts.values(), default=1)
    columns: list[Iterable[float]] = [
        map(exact.__contains__, context),
        map(folded.__contains__, lower),
        (word[:STEM] in stems for word in lower),
        (counts[word] / most for word in lower),
    ]
    return np.stack([np.fromiter(column, np.float32, len(lower)) for column in columns], axis=1)


def spell_words(rows: Sequence[Sequence[str]]) -> Ints:
    """(B, W, L) the code points of words modulo 511, plus 1; 0 beyond a word's end.

    Args:
        rows: B lists of up to W words, of each of which the first 16 characters are read (L is the
            longest's length, at least 1). Rare signs may share a number, as in CANINE's hashing
            (Clark et al. 2022, arXiv 2103.06874).
    """
    longest = max((len(word) for row in rows for word in row), default=1)
    spelt = np.zeros((len(rows), max(map(len, rows)), min(max(longest, 1), _SPELT)), np.int64)
    for number, row in enumerate(rows):
        for place, word in enumerate(row):
            spelt[number, place, : len(word)] = [1 + ord(c) % _CODES for c in word[:_SPELT]]
    return spelt


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

    def cut(self, longest: int) -> "ReadText":
        """The text's first tokens and its last, `longest` in all; a short one as it is."""
        if len(self.ids) <= longest:
            return self
        kept = [*range(longest - 1), -1]
        ids, begins, ends, word, words = self
        return ReadText(ids[kept], begins[kept], ends[kept], word[kept], words)


class TokenSpan(NamedTuple):
    """From the first to the last token of an answer; `exact` if they hold it and nothing more."""

    first: int
    last: int
    exact: bool


class TextReader:
    """Reads questions and contexts by the source side of a tokenizer.

    Texts are cut into words, numbers and signs first, so that no piece reaches over the border of
    an answer that is made of whole words.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def context(self, text: str) -> ReadText:
        """A context's ids, without marks."""
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
        """A question's ids, with the end mark after them."""
        ids, begins, ends, word, words = self.context(text)
        begins, ends = (np.append(places, len(text)) for places in (begins, ends))
        return ReadText(np.append(ids, EOS), begins, ends, np.append(word, len(words)), words)


def find_span(text: ReadText, start: int, end: int) -> TokenSpan | None:
    """The smallest run of tokens that covers the characters from `start` up to `end`, exclusive;
    None where no token stands for any of them.
    """
    # tokens that stand for nothing can neither begin nor end an answer
    meets = np.flatnonzero((text.begins < end) & (text.ends > start) & (text.ends > text.begins))
    if len(meets) == 0:
        return None
    first, last = int(meets[0]), int(meets[-1])
    exact = int(text.begins[first]) == start and int(text.ends[last]) == end
    return TokenSpan(first, last, exact)


def trimmed(answer: str, start: int) -> tuple[int, int]:
    """Where an answer that stands at `start` begins and ends, spaces around it left out."""
    begin = start + len(answer) - len(answer.lstrip())
    return begin, max(begin, start + len(answer.rstrip()))
