"""Sampled segmentations of texts into pieces: subword regularization and BPE-dropout.

sentencepiece samples, too, but not reproducibly: it salts its generator in each process (0.2.3).
Here a `random.Random` is used.
"""

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from operator import add
from random import Random

import sentencepiece

from seqattn.tokens import UNK

_WORDS = 1 << 16  # cached, since most words of a text repeat
_UNKNOWN_PENALTY = 10.0  # sentencepiece's, below the least likely piece


class Segmentation:
    """Sampler of segmentations of normalized texts.

    A text is cut wherever no piece contains both neighbors, and each part, usually a word, is
    segmented separately. Time is quadratic in the length of a part.

    Args:
        alpha: as `Side.sample`.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, alpha: float) -> None:
        no_text = (processor.is_unknown, processor.is_control, processor.is_unused)
        ids = [n for n in range(processor.get_piece_size()) if not any(is_(n) for is_ in no_text)]
        self.ids = {processor.id_to_piece(n): n for n in ids}  # bytes included
        pieces = [n for n in ids if not processor.is_byte(n)]
        self.scores = {processor.id_to_piece(n): processor.get_score(n) for n in pieces}
        self.unknown = min(self.scores.values()) - _UNKNOWN_PENALTY
        self.alpha, self.longest = alpha, max(map(len, self.scores))
        self._merges = {two for piece in self.scores for two in map(add, piece, piece[1:])}
        self._lattice = lru_cache(_WORDS)(self._new_lattice)
        by_merges = all(score.is_integer() for score in self.scores.values())  # negative ranks
        self._numbers = lru_cache(_WORDS)(self._numbers_of)
        self.split_word = self.bpe_dropout if by_merges else self.unigram

    def __call__(self, text: str, random: Random) -> list[int]:
        """Return the ids of a normalized text, without marks."""
        ids = [
            number
            for word in self._words(text)
            for piece in self.split_word(word, random)
            for number in self._numbers(piece)
        ]
        if UNK not in ids:
            return ids
        # as sentencepiece, which merges adjacent unknowns
        return [n for token, run in groupby(ids) for n in ([UNK] if token == UNK else run)]

    def bpe_dropout(self, word: str, random: Random) -> list[str]:
        """Sample pieces by BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267, algorithm 1).

        At each step every merge is dropped with probability `alpha`, and the best of the others
        is applied, until none is left.
        """
        parts = list(word)
        while merges := [
            (-self.scores[two], index)
            for index, two in enumerate(map(add, parts, parts[1:]))
            if two in self.scores and random.random() >= self.alpha
        ]:
            index = min(merges)[1]
            parts[index : index + 2] = [parts[index] + parts[index + 1]]
        return parts

    def unigram(self, word: str, random: Random) -> Sequence[str]:
        """Sample pieces with their probability to the power of `alpha` (Kudo 2018, arXiv
        1804.10959, eq. 5 with l = infinity), by forward filtering and backward sampling."""
        bounds = [len(word)]
        lattice = self._lattice(word)
        while bounds[-1]:
            starts, shares = lattice[bounds[-1] - 1]
            threshold = random.random() * shares[-1]
            bounds.append(starts[bisect(shares, threshold, hi=len(shares) - 1)])
        return [word[start:end] for start, end in pairwise(reversed(bounds))]

    def _new_lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return, for each end in a word, where its pieces start and their cumulative weights."""
        totals, lattice = [0.0], []  # log of the sum over all segmentations up to a place
        for end in range(1, len(word) + 1):
            first = max(0, end - self.longest)
            starts = [n for n in range(first, end) if n == end - 1 or word[n:end] in self.scores]
            scores = [self.scores.get(word[n:end], self.unknown) for n in starts]
            logs = [totals[n] + self.alpha * score for n, score in zip(starts, scores)]
            largest = max(logs)
            shares = [*accumulate(math.exp(log - largest) for log in logs)]
            totals.append(largest + math.log(shares[-1]))
            lattice.append((starts, shares))
        return lattice

    def _words(self, text: str) -> Iterator[str]:
        start = 0
        for index, two in enumerate(map(add, text, text[1:]), 1):
            if two not in self._merges:
                yield text[start:index]
                start = index
        if text:
            yield text[start:]

    def _numbers_of(self, piece: str) -> list[int]:
        """Return the id of a piece, or the ids of the bytes of a character that has none."""
        if piece in self.scores:
            return [self.ids[piece]]
        return [self.ids.get(f"<0x{byte:02X}>", UNK) for byte in piece.encode()]
