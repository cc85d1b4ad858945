"""What is measured, and how measurements are compared."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Name = TypeVar("Name")


class Sample(NamedTuple):
    """One timed piece of work.

    `seconds` on the wall, `cpu_seconds` of its process on all cores (which a busy machine disturbs
    less), `units` of work done: target tokens in training, sentences in decoding.
    """

    seconds: float
    cpu_seconds: float
    units: int


class Spread(NamedTuple):
    """The middle of several values, and their ends."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        median, low, high = (f"{x:,.0f}" if x >= 1000 else f"{x:.2f}" for x in self)
        return f"{median} ({low} to {high})"


def timed(work: Callable[[], int]) -> Sample:
    """Does `work`, which returns its units, and times it."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, units)


def take_turns(
    contestants: Mapping[Name, Callable[[int], Sample]], rounds: int
) -> dict[Name, list[Sample]]:
    """Round by round, every contestant does that round's work once, every other round backwards.

    Args:
        contestants: each from the number of a round to its sample.
        rounds: how many.
    """
    samples: dict[Name, list[Sample]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in list(contestants)[:: 1 if number % 2 else -1]:
            samples[name].append(contestants[name](number))
    return samples


def rates(samples: Sequence[Sample]) -> Spread:
    """Units a second, over the rounds."""
    return Spread.of([sample.units / sample.seconds for sample in samples])


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
    pairs = list(zip(samples, others, strict=True))
    for own, other in pairs:
        if own.units != other.units:
            raise ValueError(f"a round's work must be equal, got {own.units} and {other.units}")
    return Spread.of([other[int(cpu)] / max(own[int(cpu)], 1e-9) for own, other in pairs])
