"""What scores of several seeds and sentences say of systems: intervals, and tests of two."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.significance import PairedTest

from seqattn.metrics.means import Floats

Pair = tuple[str, str]
LEVEL = 0.05
"""Of all tests; intervals hold 1 - LEVEL."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class SentenceCounts:
    """A metric of a corpus as what each sentence adds to it.

    Args:
        name: such as "BLEU".
        counts: (N, C), for each sentence.
        compute: sums of counts (C) to the score, 0 to 100.
        lower: True if a lower score is better.
    """

    name: str
    counts: Floats
    compute: Callable[[list[float]], float] = field(repr=False)
    lower: bool = False

    @classmethod
    def of_means(cls, names: Sequence[str], values: Floats) -> "list[SentenceCounts]":
        """Means over sentences. Args: values: (N, names)."""
        ones = np.ones(len(values))
        return [cls(n, np.stack([v, ones], 1), _mean) for n, v in zip(names, values.T, strict=True)]

    @cached_property
    def score(self) -> float:
        """Of the corpus."""
        return self.compute(self.counts.sum(0).tolist())

    @cached_property
    def each(self) -> Floats:
        """(N,) of each sentence by itself."""
        return np.array([self.compute(row) for row in self.counts.tolist()])

    @cached_property
    def influence(self) -> Floats:
        """(N,) what each sentence adds to the score, N - 1 times (the jackknife, Tukey 1958).

        Their variance over N is that of the score over corpora of N sentences.
        """
        rest = (self.counts.sum(0) - self.counts).tolist()
        return (len(rest) - 1) * (self.score - np.array([self.compute(row) for row in rest]))


def _mean(sums: list[float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0


def student_p(t: float, df: float) -> float:
    """The probability that |T| is above |t|, T of Student's distribution. Args: df: at least 1."""

    def area(start: float) -> float:  # T = sqrt(df) tan(angle)
        half = (np.pi / 2 - start) / 2
        return float(half * _WEIGHTS @ np.cos(start + half * (_NODES + 1)) ** (df - 1))

    return area(np.arctan(abs(t) / df**0.5)) / area(0.0)


def student_quantile(df: float) -> float:
    """The t that |T| is above with a probability of `LEVEL`. Args: df: at least 1."""
    low, high = 0.0, 1.0
    while student_p(high, df) > LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, df) > LEVEL else (low, middle)
    return high


def seed_interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """95 % of Student's t for the mean over all seeds, the test sentences as they are.

    Args:
        scores: of R seeds; None is returned for fewer than two.
    """
    if len(scores) < 2:
        return None
    half = student_quantile(len(scores) - 1) * float(np.std(scores, ddof=1)) / len(scores) ** 0.5
    return float(np.mean(scores)) - half, float(np.mean(scores)) + half


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
    half = student_quantile(df) * variance**0.5
    return Difference(value, (value - half, value + half), student_p(value / variance**0.5, df))


class SentenceTests(NamedTuple):
    """p of sacrebleu's paired tests over sentences, the trained models as they are."""

    bootstrap: float
    randomization: float


def sentence_tests(
    systems: Mapping[str, Sequence[SentenceCounts]], resamples: int, trials: int
) -> dict[Pair, SentenceTests]:
    """Paired bootstrap (Koehn 2004) and approximate randomization (Riezler and Maxwell 2005).

    Of BLEU and chrF both are sacrebleu's, on counts that are means over a system's seeds. Its
    bootstrap rejects twice as often as its level says where it does not matter which system is
    better: it compares the absolute difference with those of resamples less their mean. Of means
    over sentences, which often tie, they are our own, where what ties counts against a difference.
    Where two systems differ in D sentences, no p is below 2^(1-D), that of the fewest exchanges.

    Args:
        systems: a metric of each seed, by name.
        resamples, trials: of the bootstrap and of the randomization.
    """
    metric = next(iter(systems.values()))[0]
    counts = {name: np.mean([one.counts for one in seeds], 0) for name, seeds in systems.items()}
    if metric.compute is _mean:
        gaps = {(a, b): (counts[a] - counts[b])[:, 0] for a, b in combinations(systems, 2)}
        return {pair: _tests_of_means(gap, resamples, trials) for pair, gap in gaps.items()}
    found = {}
    named = [(name, rows.astype(np.float32)) for name, rows in counts.items()]
    for number, (name, rows) in enumerate(named[:-1]):
        columns = []
        for kind, samples in (("bs", resamples), ("ar", trials)):
            test = PairedTest(named[number:], {"": _Counted(metric)}, None, kind, samples)
            columns.append([one.p_value for one in test()[1][metric.name][1:]])  # type: ignore[union-attr]
        for (other, others), *p in zip(named[number + 1 :], *columns, strict=True):
            differing = int((rows != others).any(axis=1).sum())
            least = min(1.0, 2.0 ** (1 - differing))  # sacrebleu's do not count what ties
            found[name, other] = SentenceTests(*(max(least, one) for one in p))
    return found


def _tests_of_means(gaps: Floats, resamples: int, trials: int) -> SentenceTests:
    """Of the mean of gaps (N): sampled with replacement about itself, and with signs by chance."""
    chance = np.random.default_rng(12345)  # sacrebleu's seed
    least, count = abs(gaps.sum()) * (1 - 1e-9) - 1e-9, len(gaps)
    drawn = (chance.choice(gaps, count).sum() - gaps.sum() for _ in range(resamples))
    swapped = (chance.choice((-1.0, 1.0), count) @ gaps for _ in range(trials))
    above = (sum(abs(one) >= least for one in sums) for sums in (drawn, swapped))
    return SentenceTests(
        *((n + 1) / (of + 1) for n, of in zip(above, (resamples, trials), strict=True))
    )


class _Counted(Metric):
    """A metric whose texts are counts already, as sacrebleu's tests ask for them."""

    def __init__(self, metric: SentenceCounts) -> None:
        self.name, self.compute = metric.name, metric.compute

    def get_signature(self) -> Signature:
        return Signature({"num_refs": 1})

    def _extract_corpus_statistics(self, hypotheses: object, references: object) -> object:
        return hypotheses

    def _aggregate_and_compute(self, stats: Floats) -> Score:  # type: ignore[override]
        return self._compute_score_from_stats(np.sum(stats, 0))

    def _compute_score_from_stats(self, stats: Floats) -> Score:  # type: ignore[override]
        return Score(self.name, self.compute(stats.tolist()))

    def _preprocess_segment(self, sent: str) -> str:
        raise NotImplementedError

    _extract_reference_info = _compute_segment_statistics = _preprocess_segment  # type: ignore[assignment]
