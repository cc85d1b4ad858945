"""Texts that a vocabulary is learned from, some of them in capitals."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from seqattn.data.word_links import LinkedPair
from seqattn.extras.noise.kinds import Writing, Writings, noised

LEARNT = ("title", "upper")
"""Kinds of noise that a vocabulary needs pieces for."""


@dataclass(frozen=True)
class NoisyTexts:
    """Texts of a side, some with noise, the same in each iteration.

    Args:
        source, target: texts of both sides.
        side: the one that is yielded, 0 or 1.
        rates: of kinds of noise.
    """

    source: Iterable[str]
    target: Iterable[str]
    side: Literal[0, 1]
    rates: Mapping[str, float]

    def __iter__(self) -> Iterator[str]:
        writings, random = Writings(*map(Writing.of, (self.source, self.target))), Random(0)
        for pair in zip(self.source, self.target, strict=True):
            kinds = [name for name, rate in self.rates.items() if random.random() < rate]
            yield noised(LinkedPair(*pair), kinds, writings, random)[self.side]
