"""Which source each step of a mixture reads, and how far it has read each before that step."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from seqattn.errors import UserError

_RING = 1 << 63
_GOLDEN = 0x4F1BBCDCBFA53E0B
"""The ring by the golden ratio: its multiples are spread evenly over the ring, however many."""
_LONGEST = 10**15
"""Steps of a stage."""


@dataclass(frozen=True)
class Stage:
    """Weights of sources up to an end.

    Args:
        weights: share of the steps that read each source, by name, in any unit; those that it lacks
            are not read. None for shares by which all sources end their passes together.
        length: number of optimizer steps, or of passes over `source`; None for no end.
        source: source whose passes are counted; None to count steps.
    """

    weights: Mapping[str, float] | None = None
    length: float | None = None
    source: str | None = None


@dataclass(frozen=True)
class _Leg:
    """A stage with its place among all steps: step n of it reads the source on whose arc of the
    ring the point `offset + n * _GOLDEN` lies.

    Args:
        first: number of its first step.
        read: steps in which each source was read before.
        ends: end of each source's arc.
    """

    first: int
    read: Sequence[int]
    ends: Sequence[int]
    offset: int

    def count(self, source: int, steps: int) -> int:
        """Return how many of the first steps read a source."""
        arc = (0, *self.ends)[source], self.ends[source]
        turns = [_floor_sum(steps, self.offset - border) for border in arc]
        return turns[0] - turns[1]

    def counts(self, steps: int) -> list[int]:
        """Return in how many steps each source has been read at a step of the stage."""
        return [count + self.count(n, steps) for n, count in enumerate(self.read)]

    def sources(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the source of each step from `start` to `stop` of the stage."""
        steps = np.arange(start, stop, dtype=np.uint64)
        points = (steps * np.uint64(_GOLDEN) + np.uint64(self.offset)) % np.uint64(_RING)
        return np.searchsorted(np.array(self.ends[:-1], np.uint64), points, "right")


class Schedule:
    """Sources of all steps of a training, by stages.

    The shares of any part of a stage differ from its weights by few steps. Which source a step
    reads, and how often each was read before, is computed without the steps before.

    Args:
        stages: the last may have an end, after which it goes on.
        sizes: steps of a pass over each source, by name.

    Attributes:
        ends: the step at which each stage ends, for those that have an end.

    Raises:
        UserError: for a stage that takes too many steps.
    """

    def __init__(self, stages: Sequence[Stage], sizes: Mapping[str, int], seed: int) -> None:
        self.sizes, self._legs, self.ends = sizes, list[_Leg](), list[int]()
        first, read = 0, [0] * len(sizes)
        for number, stage in enumerate(stages):
            weights: Mapping[str, float] = sizes if stage.weights is None else stage.weights
            shares = [Fraction(weights.get(name, 0)) for name in sizes]
            ends = [int(_RING * sum(shares[: n + 1]) / sum(shares)) for n in range(len(sizes))]
            offset = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])
            leg = _Leg(first, read, ends, offset % _RING)
            self._legs.append(leg)
            if stage.length is None:
                break
            length = math.ceil(stage.length)
            if stage.source is not None:
                at = list(sizes).index(stage.source)
                passes = max(1, round(stage.length * sizes[stage.source]))
                margin = 100  # steps of the source that it may be late
                steps = range(min(_LONGEST, int((passes + margin) * sum(shares) / shares[at])))
                length = bisect_left(steps, passes, key=lambda n: leg.count(at, n))
            if length >= _LONGEST:
                raise UserError(f"stage {number + 1} of data.stages has too many steps")
            first, read = first + length, leg.counts(length)
            self.ends.append(first)

    def read(self, step: int) -> list[int]:
        """Return in how many of the steps before a step each source was read."""
        leg = self._legs[bisect_right(self._legs, step, key=attrgetter("first")) - 1]
        return leg.counts(step - leg.first)

    def sources(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the sources that `count` steps from `first` on read."""
        starts = [leg.first for leg in self._legs]
        parts = [
            leg.sources(max(first, start) - start, min(first + count, stop) - start)
            for leg, start, stop in zip(self._legs, starts, [*starts[1:], first + count])
            if start < first + count and stop > first
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    @property
    def summary(self) -> str:
        """Line about the end of each stage and the shares of its sources."""
        stages = []
        for number, leg in enumerate(self._legs):
            arcs = zip(self.sizes, np.diff([0, *leg.ends]) / _RING, strict=True)
            shares = ", ".join(f"{name} {share:.3g}" for name, share in arcs if share)
            ends = f" to step {self.ends[number]:,}" if number < len(self.ends) else ""
            stages.append(f"stage {number + 1}{ends}: {shares}")
        if len(self.ends) == len(self._legs):
            stages.append(f"it goes on after that (trainer.max_steps={self.ends[-1]} ends there)")
        return "; ".join(stages)

    def __str__(self) -> str:
        return str([(leg.first, leg.ends, leg.offset) for leg in self._legs])


def _floor_sum(count: int, offset: int) -> int:
    """Return the sum of (offset + n * _GOLDEN) // _RING over n from 0 to `count` - 1.

    It takes as many rounds as Euclid's algorithm.
    """
    total, size, slope = 0, _RING, _GOLDEN
    while True:
        quotient, slope = divmod(slope, size)
        floor, offset = divmod(offset, size)
        total += quotient * count * (count - 1) // 2 + floor * count
        height = slope * count + offset
        if height < size:
            return total
        (count, offset), (size, slope) = divmod(height, size), (slope, size)
