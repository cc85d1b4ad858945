"""What scores of several seeds and sentences say of systems: intervals, and tests of two."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqattn.errors import UserError
from seqattn.metrics.significance import LEVEL, SentenceCounts

try:
    from scipy import stats
except ModuleNotFoundError as error:
    raise UserError("compare needs scipy: pip install -e .[compare], in the checkout") from error


def seed_interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """95 % of Student's t for the mean over all seeds, the test sentences as they are.

    Args:
        scores: of R seeds; None is returned for fewer than two.
    """
    if len(scores) < 2:
        return None
    mean = float(np.mean(scores))
    half = float(stats.t.ppf(1 - LEVEL / 2, len(scores) - 1) * stats.sem(scores))
    return mean - half, mean + half


class Difference(NamedTuple):
    """How far the mean score of one system is above another's, with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    """None where a system has one seed, or there is one sentence."""
    p: float | None
    """Of no difference, for other seeds and other sentences; None where a system has one seed, 1 of
    one sentence, which says nothing of others."""


class SeedVariance(NamedTuple):
    """The variance of scores over seeds, and the degrees of freedom of its estimate."""

    value: float
    freedom: int

    @classmethod
    def of(cls, systems: Iterable[Sequence[SentenceCounts]]) -> "SeedVariance":
        """That within systems, as if it were the same in all; some must have two seeds."""
        several = [[one.score for one in seeds] for seeds in systems if len(seeds) > 1]
        freedom = sum(len(seeds) - 1 for seeds in several)
        squares = sum(float(np.var(seeds, ddof=1)) * (len(seeds) - 1) for seeds in several)
        return cls(squares / freedom, freedom)


def difference(
    first: Sequence[SentenceCounts],
    second: Sequence[SentenceCounts],
    pooled: SeedVariance | None = None,
) -> Difference:
    """Two systems on the same sentences, where seeds and sentences are both drawn by chance.

    The variance of the difference is that over the seeds of each system, and that over sentences
    of the mean over seeds, less what both count: of seeds and sentences together (two-way
    clustering; Cameron, Gelbach and Miller 2011, eq. 2.11). Its degrees of freedom are those of
    Welch and Satterthwaite (1946), so that seeds may differ in number and variance.

    Args:
        first, second: a metric of each seed.
        pooled: the variance over seeds of both; None to take each from its own seeds.
    """
    both = (first, second)
    ours, theirs = (float(np.mean([seed.score for seed in seeds])) for seeds in both)
    value = ours - theirs
    if min(map(len, both)) < 2:
        return Difference(value, None, None)
    sentences = len(first[0].counts)
    if sentences < 2:
        return Difference(value, None, 1.0)
    own = [SeedVariance.of([seeds]) for seeds in both]
    parts = [(one.value / len(seeds), one.freedom) for one, seeds in zip(own, both, strict=True)]
    if pooled is not None:
        parts = [(pooled.value * (1 / len(first) + 1 / len(second)), pooled.freedom)]
    influences = [np.array([seed.influence for seed in seeds]) for seeds in both]  # (R, N)
    shared = float(np.var(influences[0].mean(0) - influences[1].mean(0), ddof=1)) / sentences
    free = sentences - 1
    counted = sum(float(one.var(0, ddof=1).sum()) / free / one.size for one in influences)
    parts.append((max(0.0, shared - counted), free))
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Difference(value, (value, value), float(value == 0))
    df = variance**2 / sum(part**2 / free for part, free in parts)
    half = float(stats.t.ppf(1 - LEVEL / 2, df)) * variance**0.5
    p = 2 * float(stats.t.sf(abs(value) / variance**0.5, df))
    return Difference(value, (value - half, value + half), p)
