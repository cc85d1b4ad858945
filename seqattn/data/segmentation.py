"""Words cut into pieces by chance, by random numbers of our own."""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from operator import add

import sentencepiece

from seqattn.tokens import UNK

Random = Callable[[], float]
"""Gives numbers from 0 up to but not 1, such as `random.Random(seed).random`."""
_WORDS, _STATES = 1 << 16, 1 << 17  # remembered: most words of a text are old ones
_UNKNOWN_PENALTY = 10.0  # sentencepiece's, below the least likely piece


def segmentation(processor: sentencepiece.SentencePieceProcessor, alpha: float) -> "Segmentation":
    """How a model's texts are cut by chance. Args: alpha: as `Side.sample`."""
    kinds = (processor.is_unknown, processor.is_control, processor.is_byte, processor.is_unused)
    numbers = range(processor.get_piece_size())
    kept = [n for n in numbers if not any(is_kind(n) for is_kind in kinds)]
    scores = {processor.id_to_piece(n): processor.get_score(n) for n in kept}
    ids = {processor.id_to_piece(n): n for n in numbers if n in set(kept) or processor.is_byte(n)}
    by_merges = all(score.is_integer() for score in scores.values())  # BPE's are minus the ranks
    return (BpeDropout if by_merges else UnigramSampling)(scores, ids, alpha)


class Segmentation(ABC):
    """Cuts normalised texts into ids of pieces.

    Where no piece holds two neighbours, a text is cut in any case; what is between such places, a
    word as a rule, is cut by itself, and much of it is remembered. Time grows with the square of
    such a stretch.

    Args:
        scores: of pieces, without those that stand for no text of their own.
        ids: of these pieces, and of bytes where there are some.
    """

    def __init__(self, scores: dict[str, float], ids: dict[str, int]) -> None:
        self.scores, self.ids = scores, ids
        self._joined = {two for piece in scores for two in map(add, piece, piece[1:])}

    @abstractmethod
    def cut(self, word: str, random: Random) -> list[int]:
        """Ids of a stretch, one or several for each piece."""

    def __call__(self, text: str, random: Random) -> list[int]:
        """Ids of a text as sentencepiece normalises it, without marks."""
        ids = [number for word in self._words(text) for number in self.cut(word, random)]
        if UNK not in ids:
            return ids
        # as sentencepiece, which calls unknown neighbours one
        return [n for n, before in zip(ids, [None, *ids]) if not n == before == UNK]

    def _words(self, text: str) -> Iterator[str]:
        start, joined = 0, self._joined
        for place, two in enumerate(map(add, text, text[1:]), 1):
            if two not in joined:
                yield text[start:place]
                start = place
        if text:
            yield text[start:]

    def numbers(self, piece: str) -> list[int]:
        """The id of a piece, or of each byte of a character that is none."""
        if piece in self.scores:
            return [self.ids[piece]]
        return [self.ids.get(f"<0x{byte:02X}>", UNK) for byte in piece.encode()]


Parts = tuple[str, ...]


class BpeDropout(Segmentation):
    """BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267, algorithm 1).

    At each step every merge is left out with probability `alpha`, and the best of the others is
    made, until none is left. So the k-th best is made with probability alpha^k (1 - alpha).
    """

    def __init__(self, scores: dict[str, float], ids: dict[str, int], alpha: float) -> None:
        super().__init__(scores, ids)
        self._out, self._in = math.log(alpha), math.log1p(-alpha)
        self.merges = lru_cache(_STATES)(self._merges)
        self.merged = lru_cache(_WORDS)(self._merged)

    def cut(self, word: str, random: Random) -> list[int]:
        steps, ids = self.merged(word)
        best = int(math.log(1.0 - random()) / self._in)  # steps before the first without its best
        if best >= steps:
            return ids
        parts = tuple(word)
        for _ in range(best):
            parts = _joined(parts, self.merges(parts)[0])
        skipped = 1 + self._skipped(random)
        while skipped < len(places := self.merges(parts)):
            parts = _joined(parts, places[skipped])
            skipped = self._skipped(random)
        return [number for piece in parts for number in self.numbers(piece)]

    def _skipped(self, random: Random) -> int:
        return int(math.log(1.0 - random()) / self._out)

    def _merges(self, parts: Parts) -> list[int]:
        """Where two neighbours can be merged, the best first: the left ones' places."""
        pairs = enumerate(map(add, parts, parts[1:]))
        found = [(-self.scores[two], place) for place, two in pairs if two in self.scores]
        return [place for _, place in sorted(found)]

    def _merged(self, word: str) -> tuple[int, list[int]]:
        """How many steps it takes with every merge, and what comes of it."""
        parts: Parts = tuple(word)
        while places := self._merges(parts):
            parts = _joined(parts, places[0])
        return len(word) - len(parts), [n for piece in parts for n in self.numbers(piece)]


def _joined(parts: Parts, place: int) -> Parts:
    return (*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :])


Arcs = tuple[list[int], list[float], list[list[int]]]
"""Of the pieces that end at a place: where each starts, the probability of it and those before it,
and its ids."""


class UnigramSampling(Segmentation):
    """Draws a segmentation with a probability as its own to the power of `alpha` (Kudo 2018,
    arXiv 1804.10959, eq. 5 with l = infinity), by filtering forward and sampling backward."""

    def __init__(self, scores: dict[str, float], ids: dict[str, int], alpha: float) -> None:
        super().__init__(scores, ids)
        self.alpha, self.longest = alpha, max(map(len, scores))
        self.unknown = min(scores.values()) - _UNKNOWN_PENALTY
        self.lattice = lru_cache(_WORDS)(self._lattice)

    def cut(self, word: str, random: Random) -> list[int]:
        lattice, end = self.lattice(word), len(word)
        backward: list[list[int]] = []
        while end:
            starts, shares, ids = lattice[end - 1]
            chosen = min(bisect_right(shares, random()), len(starts) - 1)
            backward.append(ids[chosen])
            end = starts[chosen]
        return [number for numbers in reversed(backward) for number in numbers]

    def _lattice(self, word: str) -> list[Arcs]:
        """The arcs to each place after the first."""
        totals, lattice = [0.0], list[Arcs]()
        for end in range(1, len(word) + 1):
            starts = [
                start
                for start in range(max(0, end - self.longest), end)
                if start == end - 1 or word[start:end] in self.scores
            ]
            pieces = [word[start:end] for start in starts]
            weights = [
                totals[start] + self.alpha * self.scores.get(piece, self.unknown)
                for start, piece in zip(starts, pieces, strict=True)
            ]
            most = max(weights)
            likely = [math.exp(weight - most) for weight in weights]
            whole = math.fsum(likely)
            totals.append(most + math.log(whole))
            shares = list(accumulate(one / whole for one in likely))
            lattice.append((starts, shares, [self.numbers(piece) for piece in pieces]))
        return lattice
