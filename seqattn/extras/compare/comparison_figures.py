"""Plots of a comparison, and the numbers in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from seqattn.extras.compare.comparison_plots import Point, band_panels, cost_panels, interval_panels
from seqattn.extras.compare.costs import Cost
from seqattn.extras.compare.run_results import ComparedRun
from seqattn.extras.compare.seed_statistics import seed_interval, within
from seqattn.extras.compare.system_statistics import MetricFigures, SystemScore
from seqattn.extras.compare.word_frequency import BINS, f1_by_frequency, words_by_frequency
from seqattn.metrics.lengths import length_bins
from seqattn.metrics.scripts import split_words
from seqattn.metrics.text import TextScore
from seqattn.training.measurements import read_figures

Runs = Mapping[str, Sequence[ComparedRun]]
Curves = dict[str, dict[str, list[Point]]]
_MOST_BINS = 5
DECODING = "decoding time per sentence (ms)"


def figures_of(
    systems: Runs,
    metrics: Sequence[MetricFigures],
    costs: Mapping[str, Cost],
    counts: Mapping[str, int] | None,
) -> tuple[dict[str, Figure], dict[str, Any]]:
    """Return plots by title, and the points of their curves.

    Args:
        systems: runs by system.
        metrics: metrics in display order.
        costs: costs by system.
        counts: word counts of the training targets; None to omit their plot.
    """
    systems = {name: systems[name] for name in metrics[0].systems}
    first, rows = metrics[0].name, next(iter(systems.values()))[0].rows
    scores = {
        metric.name: {name: (_quality(one), one.seeds) for name, one in metric.systems.items()}
        for metric in metrics
    }
    plots = {"Scores": interval_panels(scores, "Mean over seeds with 95 % interval, and each seed")}
    measured: dict[str, Any] = {}
    if panels := against_cost(metrics[0], costs):
        plots["Quality against cost"] = cost_panels(
            panels,
            f"{first} against cost; dashed: Pareto front",
            first,
            metrics[0].lower,
        )
    unit = next(iter(systems.values()))[0].results.unit
    ticks, curves = _by_length(systems, first, in_letters=unit == "words")
    measured["by length"] = {"bins": ticks, "points": curves}
    counted = "letters of the word" if unit == "words" else "words in the source"
    across = f"{counted} (below: number of {unit})"
    plots["By length of the source"] = band_panels(
        curves, f"{first} by source length", across, ticks
    )
    if counts is not None:
        curves = _by_frequency(systems, counts)
        bin_counts = words_by_frequency([row.references for row in rows], counts)
        ticks = [f"{words}\n{number:,}" for words, number in zip(BINS, bin_counts, strict=True)]
        measured["by frequency"] = {"bins": ticks, "points": curves}
        across = "count in training targets (below: words in references)"
        title = "F1 of output words by their count in training"
        plots["By frequency of target words"] = band_panels(curves, title, across, ticks)
    if curves := _learning(systems, first):
        measured["learning"] = curves
        plots["Learning curves"] = band_panels(
            curves, "Validation during training, mean over seeds", "optimizer steps"
        )
    return plots, measured


def _point(x: float, values: Sequence[float]) -> Point:
    interval = seed_interval(values)
    return Point(x, float(np.mean(values)), *(within(interval, values) if interval else ()))


def against_cost(
    metric: MetricFigures, costs: Mapping[str, Cost]
) -> dict[str, dict[str, tuple[float, Point]]]:
    """Return each system's cost and score, for each cost that all systems have and that varies."""
    words = {
        "parameters": "parameters",
        "training_seconds": "training time (s)",
        "milliseconds": DECODING,
        "cache_bytes": "cache per sentence (bytes)",
    }
    points = {}
    for key, what in words.items():
        values = {name: getattr(costs[name], key) for name in metric.systems}
        if None not in values.values() and len(set(values.values())) > 1:
            points[what] = {
                name: (float(values[name]), _quality(score))
                for name, score in metric.systems.items()
            }
    return points


def _quality(score: SystemScore) -> Point:
    return Point(0, score.mean, *(score.interval or ()))


def _by_length(systems: Runs, metric: str, in_letters: bool) -> tuple[list[str], Curves]:
    """Return scores of sentences of similar length, with about equally many in each bin."""
    first = next(iter(systems.values()))[0]
    data, sources = first.settings.get("data") or {}, [row.source for row in first.rows]
    if in_letters:  # as words
        mark = data.get("feature_mark", ";") if data.get("features_column") else None
        sources = [" ".join(text.split(mark)[0] if mark else text) for text in sources]
    words = [len(split_words(source)) for source in sources]
    shares = np.linspace(0, 1, _MOST_BINS + 1)[1:-1]
    edges = sorted({max(1, int(edge)) for edge in np.quantile(words, shares)})
    bins = length_bins(sources, edges)
    ticks = [f"{group.words}\n{len(group.rows):,}" for group in bins]
    curves = {
        name: [
            _point(x, [_part(run, metric, group.rows) for run in runs])
            for x, group in enumerate(bins)
        ]
        for name, runs in systems.items()
    }
    return ticks, {metric: curves}


def _part(run: ComparedRun, metric: str, rows: Sequence[int]) -> float:
    counts = run.sentences[metric]
    return counts.compute(counts.counts[list(rows)].sum(0).tolist())


def _by_frequency(systems: Runs, counts: Mapping[str, int]) -> Curves:
    curves = {}
    for name, runs in systems.items():
        f1_by_run = [
            f1_by_frequency(
                [row.output for row in run.rows], [row.references for row in run.rows], counts
            )
            for run in runs
        ]
        curves[name] = [
            _point(x, [value for value in values if value is not None])
            for x, values in enumerate(zip(*f1_by_run, strict=True))
            if any(value is not None for value in values)
        ]
    return {"word F1": curves}


def _learning(systems: Runs, metric: str) -> Curves:
    """Return validation figures by step, for the steps that all seeds of a system share."""
    keys = {
        "val/loss": "val/loss",
        f"val/{TextScore(metric, 0, '').key}": f"validation {metric}",
    }
    curves: Curves = {}
    for key, title in keys.items():
        for name, runs in systems.items():
            seeds = [
                {
                    int(row["step"]): float(row[key])
                    for row in read_figures(run.run_dir)
                    if row.get(key)
                }
                for run in runs
            ]
            steps = sorted(set.intersection(*map(set, seeds)))
            if len(steps) > 1:  # a single point is not a curve
                points = [_point(step, [losses[step] for losses in seeds]) for step in steps]
                curves.setdefault(title, {})[name] = points
    return curves
