"""Intervals and tests of systems from scores of several seeds and sentences."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqattn.errors import UserError
from seqattn.installation import install
from seqattn.metrics.significance import LEVEL, SentenceCounts

try:
    from scipy import stats
except ModuleNotFoundError as error:
    raise UserError(f"compare needs scipy; {install('compare')}") from error


def seed_interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval (Student's t) of the mean over seeds, for these test sentences.

    Args:
        scores: scores of R seeds; fewer than two return None.
    """
    if len(scores) < 2:
        return None
    mean = float(np.mean(scores))
    half = float(stats.t.ppf(1 - LEVEL / 2, len(scores) - 1) * stats.sem(scores))
    return mean - half, mean + half


def within(interval: tuple[float, float], scores: Sequence[float]) -> tuple[float, float]:
    """Cut an interval at 0 and at 100 if no score is beyond."""
    low, high = interval
    low = max(0.0, low) if min(scores) >= 0 else low
    return low, min(100.0, high) if max(scores) <= 100 else high


class Difference(NamedTuple):
    """Difference in mean score between two systems, with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    """None if a system has one seed, or if there is one sentence."""
    p: float | None
    """p of no difference over both seeds and sentences; None if a system has one seed, 1 for
    one sentence, which says nothing about others."""


class SeedVariance(NamedTuple):
    """Variance of scores over seeds, and the degrees of freedom of its estimate."""

    value: float
    freedom: int

    @classmethod
    def of(cls, systems: Iterable[Sequence[SentenceCounts]]) -> "SeedVariance":
        """Pool the variance within systems, assuming it is equal; some must have two seeds."""
        repeated = [[run.score for run in seeds] for seeds in systems if len(seeds) > 1]
        freedom = sum(len(seeds) - 1 for seeds in repeated)
        squares = sum(float(np.var(seeds, ddof=1)) * (len(seeds) - 1) for seeds in repeated)
        return cls(squares / freedom, freedom)


def difference(
    first: Sequence[SentenceCounts],
    second: Sequence[SentenceCounts],
    pooled: SeedVariance | None = None,
) -> Difference:
    """Compare two systems on the same sentences, with seeds and sentences both random.

    The variance of the difference is the variance over the seeds of each system, plus that over
    sentences of the mean over seeds, less what both include: seeds and sentences together (two-way
    clustering; Cameron, Gelbach and Miller 2011, eq. 2.11). Its degrees of freedom are those of
    Welch and Satterthwaite (1946), so systems may differ in number of seeds and in variance.

    Args:
        first, second: the metric for each seed.
        pooled: common variance over seeds; None to estimate each from its own seeds.
    """
    systems = (first, second)
    first_mean, second_mean = (float(np.mean([seed.score for seed in seeds])) for seeds in systems)
    value = first_mean - second_mean
    if min(map(len, systems)) < 2:
        return Difference(value, None, None)
    sentences = len(first[0].counts)
    if sentences < 2:
        return Difference(value, None, 1.0)
    variances = [SeedVariance.of([seeds]) for seeds in systems]
    parts = [(v.value / len(seeds), v.freedom) for v, seeds in zip(variances, systems, strict=True)]
    if pooled is not None:
        parts = [(pooled.value * (1 / len(first) + 1 / len(second)), pooled.freedom)]
    influences = [np.array([seed.influence for seed in seeds]) for seeds in systems]  # (R, N)
    shared = float(np.var(influences[0].mean(0) - influences[1].mean(0), ddof=1)) / sentences
    free = sentences - 1
    counted = sum(float(seeds.var(0, ddof=1).sum()) / free / seeds.size for seeds in influences)
    parts.append((max(0.0, shared - counted), free))
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Difference(value, (value, value), float(value == 0))
    df = variance**2 / sum(part**2 / free for part, free in parts)
    half = float(stats.t.ppf(1 - LEVEL / 2, df)) * variance**0.5
    p = 2 * float(stats.t.sf(abs(value) / variance**0.5, df))
    return Difference(value, (value - half, value + half), p)
