"""What a search ends with: finalists scored, timed in turns, and how sure their order is."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel

from seqattn.bundle.bundle import SpanBundle, load_bundle
from seqattn.data.base import Texts
from seqattn.data.span_batch import Questions
from seqattn.metrics.qa import measures
from seqattn.metrics.text import TextScore, TextScorer
from seqattn.runs.bundle_run import outputs_for
from seqattn.runs.evaluate import answers_to
from seqattn.training.screen import progress

Statistics = npt.NDArray[np.float64]
ROUNDS = 5
_TIMED = 128  # rows that are decoded in each round
_DRAWS = 1000


class Finalist(BaseModel):
    """A model that was trained to the end, with all its seeds."""

    name: str
    trials: list[str]
    """The run of each seed."""
    score: float
    """The mean over seeds, from 0 to 100."""
    of_seeds: list[float]
    signature: str
    loss: float
    rate: float
    """Target tokens a second, or questions: the median of the rounds."""
    slowest: float
    quickest: float
    parameters: int
    cache_bytes: int | None
    front: bool = False
    """Whether no other is better in all of score, rate, cache and parameters."""


class Difference(BaseModel):
    """How much better the first is than another, resampled over sentences and seeds."""

    first: str
    second: str
    value: float
    low: float
    high: float
    ahead: float
    """Share of the draws in which the first is better."""

    @property
    def is_sure(self) -> bool:
        """Whether 95 % of the draws leave zero out."""
        return self.low > 0 or self.high < 0

    @property
    def told(self) -> str:
        """In words."""
        within = f"{self.value:+.2f}, 95 % of resampled studies from {self.low:+.2f} to"
        numbers = f"{within} {self.high:+.2f}; ahead in {self.ahead:.0%}"
        if not self.is_sure:
            return f"{self.first} and {self.second} cannot be told apart ({numbers})"
        better, worse = (self.first, self.second) if self.low > 0 else (self.second, self.first)
        return f"{better} is better than {worse} ({numbers})"


class Outcome(BaseModel):
    """All that the end of a search found."""

    metric: str
    rows: int
    unit: str
    finalists: list[Finalist]
    """The best score first."""
    differences: list[Difference]
    """Of the first from each other one."""
    load: float
    """Processes that ran or waited on this machine while it was timed, on average."""


class _Made(NamedTuple):
    """What a bundle made of the split."""

    score: TextScore
    statistics: Statistics
    rate: Callable[[], float]


def measure(
    groups: Mapping[str, Sequence[str]], trials: Mapping[str, Any], home: Path, settings: Any
) -> Outcome:
    """Scores all runs of the finalists on the validation split, and times one of each in turns.

    Args:
        groups: the runs of each finalist, by the name of the first.
        trials: as the state of the search holds them.
        home: the folder of the runs.
        settings: the data, task and cache of the run, built.
    """
    task, threads = settings["task"], torch.get_num_threads()
    cache = Path(settings["cache_dir"]) if settings["cache_dir"] else None
    table = task.source(settings["data"]).load("val", cache)
    torch.set_num_threads(1)
    try:
        with progress("scoring", "runs") as tell:
            made: dict[str, _Made] = {}
            for number, run in enumerate(run for group in groups.values() for run in group):
                made[run] = _made(home / run / "model", task.scorer, table)
                tell(number + 1, sum(map(len, groups.values())))
        rates: dict[str, list[float]] = {name: [] for name in groups}
        for _ in range(ROUNDS):
            for name in groups:
                rates[name].append(made[name].rate())
    finally:
        torch.set_num_threads(threads)
    value = value_of(task.scorer)
    found = []
    for name, group in groups.items():
        scores = [made[run].score.value for run in group]
        trial = trials[name]
        found.append(
            Finalist(
                name=trial.name,
                trials=list(group),
                score=statistics.mean(scores),
                of_seeds=scores,
                signature=made[name].score.signature,
                loss=statistics.mean(trials[run].loss for run in group),
                rate=statistics.median(rates[name]),
                slowest=min(rates[name]),
                quickest=max(rates[name]),
                parameters=trial.parameters,
                cache_bytes=trial.cache_bytes,
            )  # fmt: skip
        )
    found.sort(key=lambda one: -one.score)
    mark_front(found)
    counts = {one.name: [made[run].statistics for run in one.trials] for one in found}
    first = found[0].name
    differences = [
        difference(first, one.name, counts[first], counts[one.name], value) for one in found[1:]
    ]
    return Outcome(
        metric=made[next(iter(groups))].score.name, rows=len(table), finalists=found, differences=differences,
        unit="questions" if task.output == "spans" else "target tokens", load=os.getloadavg()[0],
    )  # fmt: skip


def _made(path: Path, scorer: Any, table: Any) -> _Made:
    """What a bundle makes of a split, and how quickly it makes the beginning of it again."""
    bundle = load_bundle(path)
    search: Any = bundle.search()
    if isinstance(bundle, SpanBundle):
        asked = Questions.of(table)
        answers = answers_to(bundle, search, asked)
        few = Questions(*(column[:_TIMED] for column in asked))

        def rate() -> float:
            return len(few.ids) / answers_to(bundle, search, few).seconds

        score = answers.scores(scorer)[_counted(scorer)]
        texts = [answers.best[name] for name in asked.ids]
        return _Made(score, row_statistics(scorer, texts, asked.answers), rate)
    texts = Texts.of(table)
    outputs = outputs_for(bundle, search, texts.sources).texts

    def tokens_rate() -> float:
        again = outputs_for(bundle, search, texts.sources[:_TIMED])
        return again.tokens / again.seconds

    score = scorer.score(outputs, texts.references)[_counted(scorer)]
    return _Made(score, row_statistics(scorer, outputs, texts.references), tokens_rate)


def _counted(scorer: Any) -> int:
    """Which of the scores counts: F1 of answers, else the first."""
    return scorer.logged.index("f1") if "f1" in scorer.logged else 0


def row_statistics(
    scorer: Any, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> Statistics:
    """Numbers of each row (N, k) whose sums give the score of any sample of the rows."""
    if isinstance(scorer, TextScorer):
        bleu, pairs = scorer.bleu(effective_order=True), zip(outputs, references, strict=True)
        found = [bleu.sentence_score(output, list(gold)) for output, gold in pairs]
        rows = [[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in found]
        return np.array(rows, dtype=np.float64)
    values = getattr(scorer, "measures", measures)(outputs, references)[:, _counted(scorer)]
    return np.stack([values, np.ones(len(values))], axis=1)


def value_of(scorer: Any) -> Callable[[Statistics], float]:
    """The score from 0 to 100 of summed statistics (k,)."""
    if not isinstance(scorer, TextScorer):
        return lambda sums: float(sums[0] / sums[1])
    compute = type(scorer.bleu()).compute_bleu

    def bleu(sums: Statistics) -> float:
        row = [int(count) for count in sums]
        return float(compute(row[:4], row[4:8], row[8], row[9], smooth_method="exp").score)

    return bleu


def difference(
    first: str,
    second: str,
    ours: Sequence[Statistics],
    theirs: Sequence[Statistics],
    value: Callable[[Statistics], float],
    draws: int = _DRAWS,
) -> Difference:
    """How much better one model is than another, with an interval.

    The same sentences are drawn for both (Koehn 2004), and seeds of each where there are several.

    Args:
        first, second: their names.
        ours, theirs: statistics (N, k) of each seed.
        value: the score of summed statistics.
        draws: resampled studies.
    """
    random = np.random.default_rng(0)
    count = len(ours[0])
    gaps = []
    for _ in range(draws):
        weights = np.bincount(random.integers(count, size=count), minlength=count)
        mean = [
            statistics.mean(
                value(weights @ side[seed]) for seed in random.integers(len(side), size=len(side))
            )
            for side in (ours, theirs)
        ]
        gaps.append(mean[0] - mean[1])
    means = [statistics.mean(value(one.sum(axis=0)) for one in side) for side in (ours, theirs)]
    low, high = np.quantile(gaps, [0.025, 0.975])
    ahead = float(np.mean(np.array(gaps) > 0))
    gap = means[0] - means[1]
    return Difference(
        first=first, second=second, value=gap, low=float(low), high=float(high), ahead=ahead
    )


def mark_front(finalists: Sequence[Finalist]) -> None:
    """Marks those that no other dominates: as good in all that counts, and better in something."""
    goods = [(one.score, one.rate, -(one.cache_bytes or 0), -one.parameters) for one in finalists]
    for one, mine in zip(finalists, goods, strict=True):
        one.front = not any(
            other != mine and all(a >= b for a, b in zip(other, mine, strict=True))
            for other in goods
        )
