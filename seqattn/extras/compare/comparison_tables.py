"""Tables of a comparison: systems, pairs of systems, and sentences where they differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from statistics import median

import numpy as np

from seqattn.extras.compare.costs import CACHED, Cost
from seqattn.extras.compare.run_results import ComparedRun, Results
from seqattn.extras.compare.system_statistics import MetricFigures
from seqattn.extras.compare.systems import shortened
from seqattn.metrics.significance import LEVEL
from seqattn.screen import duration
from seqattn.subcommands.run_tables import TableDocument

METHODS = [
    "The 95 % interval of a system is a Student's t interval over its seeds, for the mean over all "
    "possible seeds on these sentences; a single seed gives no interval.",
    "Two systems differ significantly if p over seeds and sentences (two-way clustering, Cameron "
    "et al. 2011; degrees of freedom of Welch and Satterthwaite) is below 0.05 after Holm's (1979) "
    "correction for all pairs of a metric. The verdict extends to other seeds and similar "
    "sentences.",
    "The paired bootstrap (Koehn 2004) and approximate randomization (Riezler and Maxwell 2005) "
    "use counts averaged over seeds; the code is sacrebleu's, or our own for means over sentences. "
    "Both treat the trained models as fixed: they find too many differences if scores vary over "
    "seeds, and sacrebleu's bootstrap has twice its nominal error rate even if they do not. No "
    "verdict uses them.",
]
"""Notes on how the figures of a comparison are computed."""
_COLUMNS: Mapping[str, str] = {
    "parameters": "parameters",
    "training_seconds": "training time",
    "tokens_per_second": "training tokens/s",
    "peak_memory_mb": "peak memory (MB)",
    "cache_bytes": f"cache at {CACHED} tokens (bytes)",
    "cache_bytes_per_token": "cache per token (bytes)",
    "sentences_per_second": "decoding sentences/s",
}


Cell = str | float | None


def table(
    title: str, columns: list[str], rows: Iterable[Sequence[Cell]], notes: Sequence[str] = ()
) -> TableDocument:
    """Return the document of a table."""
    cells = [list(row) for row in rows]
    return {"title": title, "columns": columns, "rows": cells, "notes": list(notes)}


def system_table(
    title: str, results: Results, metrics: Sequence[MetricFigures], costs: Mapping[str, Cost]
) -> TableDocument:
    """Return a row for each system, best by the first metric first, with every known cost."""
    cost_keys = [key for key in _COLUMNS if any(getattr(cost, key) for cost in costs.values())]
    rows = [
        [
            name,
            str(len(score.seeds)),
            *(_format_mean(metric, name) for metric in metrics),
            *(_format_cost(costs[name], key) for key in cost_keys),
        ]
        for name, score in metrics[0].systems.items()
    ]
    columns = ["system", "seeds", *(metric.name for metric in metrics)]
    [origin], unit = shortened([results.data]), results.unit
    rows_are = f"; what is said of sentences here is of {unit}" * (unit != "sentences")
    notes = [
        f"{unit} from {origin}{rows_are}", *(f"{m.name}: {m.signature}" for m in metrics)
    ]  # fmt: skip
    if "peak_memory_mb" in cost_keys:
        notes.append(
            "peak memory: of the training process, or of its GPU; minimum over seeds; jobs of a "
            "multirun may share a process, whose peak is that of the largest so far"
        )
    if "training_seconds" in cost_keys or "tokens_per_second" in cost_keys:
        notes.append(
            "training time and tokens/s: by the clock, so they include what else the machine did"
        )
    if any(score.interval for metric in metrics for score in metric.systems.values()):
        notes.append(
            "scores: mean over seeds ± half of the 95 % interval over them; in parentheses, an "
            "interval cut at 0 or 100"
        )
    if "sentences_per_second" in cost_keys:
        notes.append("decoding: median of the rounds, in parentheses the slowest and the fastest")
    return table(title, [*columns, *(_COLUMNS[key] for key in cost_keys)], rows, notes)


def plain_table(metrics: Sequence[MetricFigures], costs: Mapping[str, Cost]) -> TableDocument:
    """Return the figures of `system_table` as plain numbers, an interval as two columns."""
    ends = ("", " low", " high")
    rows = []
    for name, first in metrics[0].systems.items():
        row: list[Cell] = [name, len(first.seeds)]
        for metric in metrics:
            score = metric.systems[name]
            row += [score.mean, *(score.interval or (None, None))]
        figures = asdict(costs[name])
        rates = figures.pop("sentences_per_second")
        rows.append([*row, *figures.values(), median(rates) if rates else None])
    scores = [f"{metric.name}{end}" for metric in metrics for end in ends]
    return table("", ["system", "seeds", *scores, *_COLUMNS], rows)


def _format_mean(metric: MetricFigures, name: str) -> str:
    score = metric.systems[name]
    if score.interval is None:
        return f"{score.mean:.2f}"
    low, high = score.interval
    if low < high and (low == 0 or high == 100):  # cut there
        ends = ("0" if low == 0 else f"{low:.2f}", "100" if high == 100 else f"{high:.2f}")
        return f"{score.mean:.2f} ({' to '.join(ends)})"
    return f"{score.mean:.2f} ± {(high - low) / 2:.2f}"


def _format_cost(cost: Cost, key: str) -> str | None:
    value = getattr(cost, key)
    if value is None or value == ():
        return None
    if key == "training_seconds":
        return duration(value)
    if key == "sentences_per_second":
        return f"{median(value):,.1f} ({min(value):,.1f} to {max(value):,.1f})"
    return f"{value:,.0f}"


def pair_table(metric: MetricFigures) -> TableDocument:
    """Return a row for each pair of systems."""
    rows = [
        [
            f"{pair.first} - {pair.second}",
            f"{pair.difference:z.2f}",  # z: no -0.00
            None if pair.interval is None else "{:z.2f} to {:z.2f}".format(*pair.interval),
            None if pair.p is None else f"{pair.p:.4f}",
            f"{pair.p_bootstrap:.4f}",
            f"{pair.p_randomization:.4f}",
            "one seed" if pair.p is None else "not " * (not pair.significant) + "significant",
        ]
        for pair in metric.pairs
    ]
    columns = ["systems", "difference", "95 % interval", "p (seeds and sentences)",
               "p (bootstrap)", "p (randomization)", "verdict"]  # fmt: skip
    notes = [
        "each p is corrected for all pairs (Holm), intervals are not; bootstrap and randomization "
        "vary only the sentences, for fixed models"
    ]
    unsure = [pair for pair in metric.pairs if pair.p is not None and not pair.significant]
    if any(min(pair.p_bootstrap, pair.p_randomization) < LEVEL for pair in unsure):
        notes.append(
            "the verdict is that of seeds and sentences: a small p of the other two says that "
            "these models differ, not that others of the same systems would"
        )
    return table(f"Pairwise differences in {metric.name}", columns, rows, notes)


def differing_sentences(
    systems: Mapping[str, Sequence[ComparedRun]], metrics: Sequence[MetricFigures], count: int
) -> list[TableDocument]:
    """Return, for each pair of systems, the sentences whose mean scores over seeds differ most.

    The score is chrF if present, else the first metric; outputs are those of the first seed.
    """
    names = [metric.name for metric in metrics]
    name = "chrF" if "chrF" in names else names[0]
    scores = {
        system: np.mean([run.sentences[name].each for run in runs], 0)
        for system, runs in systems.items()
    }
    tables = []
    for first, second in combinations(metrics[0].systems, 2):
        gaps = scores[first] - scores[second]
        rows = []
        for number in np.argsort(-np.abs(gaps), kind="stable")[:count].tolist():
            row = systems[first][0].rows[number]
            outputs = (systems[system][0].rows[number].output for system in (first, second))
            gap = f"{gaps[number]:+.1f}"
            rows.append([str(number + 1), row.source, " | ".join(row.references), *outputs, gap])
        columns = ["sentence", "source", "references", first, second, f"{name} difference"]
        tables.append(table(f"{first} and {second}", columns, rows))
    return tables
