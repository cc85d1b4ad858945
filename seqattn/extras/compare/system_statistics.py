"""Statistics of systems by metric: means, intervals, pairwise tests, and a verdict in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from seqattn.extras.compare.multiple_comparisons import groups, holm
from seqattn.extras.compare.run_results import ComparedRun
from seqattn.extras.compare.seed_statistics import SeedVariance, difference, seed_interval, within
from seqattn.metrics.significance import LEVEL, SentenceCounts, SentenceTests, sentence_tests

RESAMPLES, TRIALS = 1_000, 10_000
"""Resamples of the paired bootstrap, trials of approximate randomization: sacrebleu's defaults."""
_MAX_PAIRS = 12
"""Maximum number of pairs of single models named in a sentence; a table has all of them."""


@dataclass(frozen=True)
class SystemScore:
    """Mean over seeds with its interval (Student's t over seeds); None for one seed.

    The interval of scores from 0 to 100 ends there.
    """

    mean: float
    interval: tuple[float, float] | None
    seeds: list[float]


@dataclass(frozen=True)
class PairFigures:
    """Score of `first`, the better one, less that of `second`; each p is corrected for all pairs
    (Holm 1979)."""

    first: str
    second: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None
    """p over both seeds and sentences; None if a system has only one seed."""
    p_bootstrap: float
    p_randomization: float

    @property
    def significant(self) -> bool:
        """True if the systems differ significantly beyond these seeds and sentences."""
        return self.p is not None and self.p < LEVEL

    @property
    def words(self) -> str:
        """Size and significance of the difference."""
        low, high = sorted(map(abs, self.interval or (0.0, 0.0)))
        p = "p < 0.001" if (self.p or 0) < 0.001 else f"p = {self.p:.3f}"
        return f"{self.second} by {abs(self.difference):.2f} ({low:.2f} to {high:.2f}, {p})"


@dataclass(frozen=True)
class MetricFigures:
    """Scores of all systems in one metric, the best mean first."""

    name: str
    signature: str
    systems: dict[str, SystemScore]
    pairs: list[PairFigures]
    groups: list[list[str]]
    """Systems without a significant difference; empty if no system has two seeds."""
    lower: bool = False
    """True if a lower score is better."""

    @property
    def words(self) -> list[str]:
        """Conclusions about the systems, and what remains undecided."""
        lines = [
            f"{self.name}: no significant difference between {_and(group)}"
            for group in self.groups
            if len(group) > 1
        ]
        for name in self.systems:
            beaten = [pair.words for pair in self.pairs if pair.first == name and pair.significant]
            if beaten:
                lines.append(f"{self.name}: {name} is {self._better} {_and(beaten)}")
        return lines + self._words_of_single_seeds()

    @property
    def _better(self) -> str:
        return "below" if self.lower else "above"

    def _words_of_single_seeds(self) -> list[str]:
        single = [name for name, score in self.systems.items() if score.interval is None]
        if not single:
            return []
        note = f"{self.name}: no interval or rank with one seed ({_and(single)})"
        differ = [
            f"{pair.first} {self._better} {pair.second} ({abs(pair.difference):.2f}, "
            f"p = {pair.p_randomization:.4f})"
            for pair in self.pairs
            if pair.p is None and pair.p_randomization < LEVEL
        ]
        if not differ:
            return [note]
        models = "these models differ on these sentences, which says nothing about other seeds"
        more = f" and {len(differ) - _MAX_PAIRS} more" if len(differ) > _MAX_PAIRS else ""
        return [note, f"{self.name}: {models}: {', '.join(differ[:_MAX_PAIRS])}{more}"]


def judge(systems: Mapping[str, Sequence[ComparedRun]], pool: bool = False) -> list[MetricFigures]:
    """Compare all systems by each metric.

    Args:
        systems: runs of different seeds, by system.
        pool: assume equal variance over seeds in all systems.
    """
    first = next(iter(systems.values()))[0]
    judged = []
    for name in first.sentences:
        counts = {
            system: [run.sentences[name].by_group(first.labels) for run in runs]
            for system, runs in systems.items()
        }
        signature = first.results.scores[name].signature
        judged.append(_by_metric(name, signature, counts, pool))
    return judged


def _by_metric(
    name: str,
    signature: str,
    systems: Mapping[str, Sequence[SentenceCounts]],
    pool: bool,
) -> MetricFigures:
    means = {one: float(np.mean([run.score for run in runs])) for one, runs in systems.items()}
    lower = next(iter(systems.values()))[0].lower
    ranked = {one: systems[one] for one in sorted(means, key=means.__getitem__, reverse=not lower)}
    scores = {}
    for system, runs in ranked.items():
        seeds = [run.score for run in runs]
        interval = seed_interval(seeds)
        if interval is not None:
            interval = within(interval, seeds)
        scores[system] = SystemScore(means[system], interval, seeds)
    repeated = [system for system, score in scores.items() if score.interval is not None]
    pooled = SeedVariance.of(ranked.values()) if pool and repeated else None
    pairs = _pairs(ranked, sentence_tests(ranked, RESAMPLES, TRIALS), pooled)
    apart = {(pair.first, pair.second) for pair in pairs if pair.significant}
    return MetricFigures(name, signature, scores, pairs, groups(repeated, apart), lower)


def _pairs(
    ranked: Mapping[str, Sequence[SentenceCounts]],
    tests: Mapping[tuple[str, str], SentenceTests],
    pooled: SeedVariance | None,
) -> list[PairFigures]:
    differences = {
        (a, b): difference(ranked[a], ranked[b], pooled) for a, b in combinations(ranked, 2)
    }
    p = holm({pair: result.p for pair, result in differences.items() if result.p is not None})
    bootstrap = holm({pair: result.bootstrap for pair, result in tests.items()})
    randomization = holm({pair: result.randomization for pair, result in tests.items()})
    return [
        PairFigures(
            *pair, result.value, result.interval, p.get(pair), bootstrap[pair], randomization[pair]
        )
        for pair, result in differences.items()
    ]


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
