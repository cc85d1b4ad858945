"""Features of a context's words: their shape, and matches with a question around them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from seqattn.extras.answers.span_text import STEM, Floats, Ints, ReadText

SHAPES = ("capital", "capitals", "digits", "year", "sign", "opening")
NEAR = ("before", "after", "before, far", "after, far", "around")
CLUES = (*SHAPES, "rarity", "place", "covered", "behind", "run", "match", *NEAR)
"""Names of the features from `word_clues`."""
_DECAYS = (0.5, 0.85, 0.97)
_RAREST = 9.0  # log of the last number of a vocabulary of 8,000
_LONGEST_RUN = 5
Bools = npt.NDArray[np.bool_]


def word_clues(context: ReadText, question: ReadText) -> Floats:
    """Compute features of the W words of a context that need no lexical knowledge.

    Words match if their first letters in lower case do. The weight of a matched word is the square
    of its rarity, divided by the root of its occurrences in the context: a sliding window's weights
    by inverse frequency (Richardson et al. 2013, MCTest; Rajpurkar et al. 2016, arXiv 1606.05250,
    section 5.1), with frequencies approximated by the vocabulary's order (Zipf's law).

    Returns:
        (W, 17) in the order of `CLUES`: six shapes, each 0 or 1; rarity; position in the context, 0
            to 1; the share of the question's weight in the word's sentence, and that share minus
            the best sentence's; length of the run of question words that it is part of; its own
            weight if matched; and the weights of matched words before it, after it and on both
            sides, decaying with distance.
    """
    words, question_words = context.words, question.words
    if not words:
        return np.zeros((0, len(CLUES)), np.float32)
    stems, theirs = ([word[:STEM].lower() for word in text] for text in (words, question_words))
    sentences = _sentences(words)
    rarity = _rarity(context)
    numbers = {stem: number for number, stem in enumerate(dict.fromkeys((*stems, *theirs)))}
    mine, other = (np.array([numbers[s] for s in text], np.int64) for text in (stems, theirs))
    alike = mine[:, None] == other  # (W, Q)
    weight = alike.any(axis=1) * rarity**2 / np.sqrt(np.bincount(mine)[mine])
    held = _held(sentences, alike, _rarity(question) ** 2)
    columns = [
        *_shapes(words, sentences),
        rarity,
        np.arange(len(words)) / len(words),
        held,
        held - held.max(),
        _runs(alike) / _LONGEST_RUN,
        weight,
        *_near(weight),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _rarity(text: ReadText) -> Floats:
    """Return the summed log ids of each word's pieces, (W,), about 1 for a rare piece."""
    real = text.word < len(text.words)
    logs = np.log1p(text.ids[real]) / _RAREST
    return np.bincount(text.word[real], logs, len(text.words)).clip(max=2.0).astype(np.float32)


def _sentences(words: Sequence[str]) -> Ints:
    """Return the sentence number of each word, (W,).

    A sentence ends at a full stop before a capital letter, unless the stop follows a single letter.
    """
    ends = [
        at > 1 and words[at - 1] in ".!?" and words[at][0].isupper() and len(words[at - 2]) > 1
        for at in range(len(words))
    ]
    return np.cumsum(ends)


def _held(sentences: Ints, alike: Bools, weights: Floats) -> Floats:
    """Return the share of the question's weight in the sentence of each word, (W,)."""
    first = np.flatnonzero(np.diff(sentences, prepend=-1))
    inside = np.logical_or.reduceat(alike, first, axis=0)  # (sentences, Q)
    share: Floats = (inside @ weights / max(weights.sum(), 1e-6))[sentences]
    return share


def _runs(alike: Bools) -> Ints:
    """Return the length, up to 5, of the longest run of question words around each word, (W,)."""
    lengths, matches = np.zeros(len(alike), np.int64), alike
    for length in range(1, _LONGEST_RUN + 1):
        starts = np.flatnonzero(matches.any(axis=1))
        lengths[starts[:, None] + np.arange(length)] = length
        matches = matches[:-1, :-1] & alike[length:, length:]
    return lengths


def _near(weight: Floats) -> list[Floats]:
    """Return log sums, (W,) each in the order of `NEAR`, of weights that decay with distance."""
    sides = [side for decay in _DECAYS[:2] for side in _faded(weight, decay)]
    around = np.add(*_faded(weight, _DECAYS[2]))
    return [np.log1p(near) for near in (*sides, around)]


def _faded(weight: Floats, decay: float) -> tuple[Floats, Floats]:
    """Return sums, (W,) each, of weights before and after each word, with `decay` per step."""

    def before(weights: list[float]) -> Floats:
        sums = accumulate(weights[:-1], lambda held, new: decay * (held + new), initial=0.0)
        return np.fromiter(sums, np.float32, len(weights))

    weights_list = weight.tolist()
    return before(weights_list), before(weights_list[::-1])[::-1]


def _shapes(words: Sequence[str], sentences: Ints) -> list[Ints]:
    opens = np.append(True, np.diff(sentences) > 0)
    return [
        np.array([word[0].isupper() for word in words]),
        np.array([len(word) > 1 and word.isupper() for word in words]),
        np.array([word.isdigit() for word in words]),
        np.array([word.isdigit() and len(word) == 4 and word[0] in "12" for word in words]),
        np.array([not word[0].isalnum() for word in words]),
        opens,
    ]
