"""Corpus scores as sums over sentences or groups of them, intervals, and tests of two systems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.significance import PairedTest

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]
LEVEL = 0.05
"""Significance level of all tests; intervals cover 1 - LEVEL."""


@dataclass(frozen=True)
class SentenceCounts:
    """A corpus metric as counts per sentence, or per group of sentences.

    Args:
        name: such as "BLEU".
        counts: (N, C), for each sentence or group.
        compute: function from summed counts (C) to the score, 0 to 100.
        lower: True if a lower score is better.
    """

    name: str
    counts: Floats
    compute: Callable[[list[float]], float] = field(repr=False)
    lower: bool = False

    @classmethod
    def of_means(cls, names: Sequence[str], values: Floats) -> "list[SentenceCounts]":
        """Create counts of means over sentences. Args: values: (N, names)."""
        ones = np.ones(len(values))
        return [cls(n, np.stack([v, ones], 1), _mean) for n, v in zip(names, values.T, strict=True)]

    @cached_property
    def score(self) -> float:
        """Score of the corpus."""
        return self.compute(self.counts.sum(0).tolist())

    @cached_property
    def each(self) -> Floats:
        """Scores (N,) of the individual sentences."""
        return np.array([self.compute(row) for row in self.counts.tolist()])

    @cached_property
    def influence(self) -> Floats:
        """Return each sentence's effect on the score (N,), times N - 1 (jackknife, Tukey 1958).

        Their variance / N is the variance of the score over corpora of N sentences.
        """
        rest = (self.counts.sum(0) - self.counts).tolist()
        return (len(rest) - 1) * (self.score - np.array([self.compute(row) for row in rest]))

    def by_group(self, labels: Sequence[str] | None) -> "SentenceCounts":
        """Return counts summed over the rows of each label, which then take the place of sentences
        in intervals and tests; None leaves the rows apart."""
        if labels is None:
            return self
        number = {label: n for n, label in enumerate(dict.fromkeys(labels))}
        sums = np.zeros((len(number), self.counts.shape[1]))
        np.add.at(sums, [number[label] for label in labels], self.counts)
        return replace(self, counts=sums)

    def interval(self, resamples: int = 1000, seed: int = 0) -> tuple[float, float] | None:
        """Return the score's 95% interval by bootstrap (Koehn 2004); None without resamples, or
        for one sentence or group."""
        chance, count = np.random.default_rng(seed), len(self.counts)
        if not resamples or count < 2:
            return None
        # one by one: all draws for a corpus of 10,000 would take 80 MB
        drawn = (self.counts[chance.integers(count, size=count)].sum(0) for _ in range(resamples))
        low, high = np.percentile([self.compute(sums.tolist()) for sums in drawn], [2.5, 97.5])
        return float(low), float(high)


def _mean(sums: list[float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0


class SentenceTests(NamedTuple):
    """p-values of sacrebleu's paired tests over sentences, for fixed models."""

    bootstrap: float
    randomization: float


def sentence_tests(
    systems: Mapping[str, Sequence[SentenceCounts]], resamples: int, trials: int
) -> dict[Pair, SentenceTests]:
    """Run paired bootstrap (Koehn 2004) and approximate randomization (Riezler and Maxwell 2005).

    For BLEU and chrF both are sacrebleu's, on counts averaged over a system's seeds. Its bootstrap
    rejects twice as often as its nominal level in a two-sided test: it compares the absolute
    difference with those of resamples minus their mean. For means over sentences, which often tie,
    the tests are implemented here, counting ties against a difference. If two systems differ in D
    sentences, no p-value is below 2^(1-D), that of exchanging all of them.

    Args:
        systems: the metric of each seed, by system.
        resamples, trials: numbers of bootstrap resamples and randomization trials.
    """
    metric = next(iter(systems.values()))[0]
    counts = {name: np.mean([one.counts for one in seeds], 0) for name, seeds in systems.items()}
    if metric.compute is _mean:
        sizes = metric.counts[:, 1]
        gaps = {(a, b): (counts[a] - counts[b])[:, 0] for a, b in combinations(systems, 2)}
        return {pair: _tests_of_means(gap, sizes, resamples, trials) for pair, gap in gaps.items()}
    tests = {}
    named = [(name, rows.astype(np.float32)) for name, rows in counts.items()]
    for number, (name, rows) in enumerate(named[:-1]):
        columns = []
        for kind, samples in (("bs", resamples), ("ar", trials)):
            test = PairedTest(named[number:], {"": _Counted(metric)}, None, kind, samples)
            columns.append([one.p_value for one in test()[1][metric.name][1:]])  # type: ignore[union-attr]
        for (other, others), *p in zip(named[number + 1 :], *columns, strict=True):
            differing = int((rows != others).any(axis=1).sum())
            least = min(1.0, 2.0 ** (1 - differing))  # sacrebleu does not count ties
            tests[name, other] = SentenceTests(*(max(least, one) for one in p))
    return tests


def _tests_of_means(gaps: Floats, sizes: Floats, resamples: int, trials: int) -> SentenceTests:
    """Test the mean of gaps (N,), sums over `sizes` sentences: by bootstrap of the gaps less their
    mean, and by random sign flips."""
    chance = np.random.default_rng(12345)  # sacrebleu's seed
    least, count = abs(gaps.sum()) * (1 - 1e-9) - 1e-9, len(gaps)
    centered = gaps - sizes * gaps.sum() / max(1.0, sizes.sum())
    drawn = (chance.choice(centered, count).sum() for _ in range(resamples))
    swapped = (chance.choice((-1.0, 1.0), count) @ gaps for _ in range(trials))
    above = (sum(abs(one) >= least for one in sums) for sums in (drawn, swapped))
    return SentenceTests(
        *((n + 1) / (of + 1) for n, of in zip(above, (resamples, trials), strict=True))
    )


class _Counted(Metric):
    """A sacrebleu metric over precomputed counts instead of texts."""

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
