"""What is measured, and how measurements are compared."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """One timed piece of work.

    `seconds` on the wall, `cpu_seconds` of this process on all its cores (which a busy machine
    disturbs less), `units` of work done: target tokens in training, sentences in decoding.
    """

    seconds: float
    cpu_seconds: float
    units: int

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units / self.seconds


class Spread(NamedTuple):
    """The middle of several values, and their ends."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        return cls(statistics.median(values), min(values), max(values))


def timed(work: Callable[[], int]) -> Sample:
    """Does `work`, which gives its units, and times it."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, units)


def rates(samples: Sequence[Sample]) -> Spread:
    """Units a second, over the rounds."""
    return Spread.of([sample.rate for sample in samples])


def ratios(samples: Sequence[Sample], others: Sequence[Sample], cpu: bool = False) -> Spread:
    """How many times as fast `samples` are as `others`, round by round: both did equal work.

    Comparing within a round lets a machine's slow drift cancel; the median lets a round that
    something else disturbed count for one.

    Args:
        samples: one for each round.
        others: as many, of the same rounds.
        cpu: compare CPU time in place of time on the wall.

    Raises:
        ValueError: where a round's work differed.
    """
    found = []
    for own, other in zip(samples, others, strict=True):
        if own.units != other.units:
            raise ValueError(f"a round's work must be equal, got {own.units} and {other.units}")
        mine, theirs = (own[1], other[1]) if cpu else (own[0], other[0])
        found.append(theirs / max(mine, 1e-9))
    return Spread.of(found)
