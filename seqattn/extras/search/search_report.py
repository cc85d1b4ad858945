"""Report of a search: finalists side by side, and the models that were tried."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqattn.extras.compare.compare import Comparison
from seqattn.extras.compare.comparison_figures import DECODING, against_cost
from seqattn.extras.compare.comparison_files import as_markdown
from seqattn.extras.compare.comparison_plots import pareto_front
from seqattn.extras.compare.comparison_tables import table
from seqattn.extras.compare.costs import Cost
from seqattn.extras.compare.run_results import Reading
from seqattn.extras.compare.system_statistics import MetricFigures
from seqattn.extras.compare.systems import Systems, check_alike
from seqattn.extras.search.search_runs import losses, unchanged
from seqattn.extras.search.search_space import Candidate
from seqattn.extras.search.search_study import Halving
from seqattn.installation import commands
from seqattn.screen import duration
from seqattn.storage import write_whole
from seqattn.subcommands.run_tables import TableDocument

_CAVEAT = (
    "The ranking after few steps may differ from that after many. The best model was chosen and "
    "scored on the same validation split, so its score is slightly optimistic: train it in full, "
    "and score it on another split."
)
_LATE = "out of time"


def report(halving: Halving, notes: Sequence[str]) -> None:
    """Compare the finalists; print the findings and write them into the search's directory.

    Args:
        halving: the finished halving.
        notes: notes on the models of the space.
    """
    run_dir, finalists = halving.run_dir, halving.runs_of_finalists()
    reading = Reading("val", True, "cpu", ())
    runs = {model.name: [reading.read(run) for run in runs] for model, runs in finalists.items()}
    check_alike([run for seeds in runs.values() for run in seeds])
    (run_dir / "finalists").mkdir(exist_ok=True)
    paths = [str(path) for seeds in finalists.values() for path in seeds]
    comparison = Comparison(paths, "val", rounds=5)
    judged, costs = comparison.compare(Systems(runs, []), run_dir / "finalists")
    best = next(model for model in finalists if model.name == next(iter(judged[0].systems)))
    base = unchanged(halving.search.overrides, best.overrides)
    command = shlex.join(["python", "train.py", *halving.search.options, *base, *best.overrides])
    tried = tried_models(halving, finalists)
    total, number = len(tried["rows"]), sum(row[1] is not None for row in tried["rows"])
    of = f" of {total}" if number < total else ""
    lines = [
        f"tried {number}{of} models in {duration(halving.seconds_spent)}; trained finalists for "
        f"{halving.budget.steps:,} steps",
        *_front(judged[0], costs),
        f"{'best' if number > 1 else 'only trained'} model: {best.name}; train it in full with: "
        f"{commands(command)}",
    ]
    late = sum(row[1] is None and row[3] == _LATE for row in tried["rows"])
    if late:
        lines.insert(1, f"{late} of {total} reached no validation in time; raise budget.minutes")
    bullets = "".join(f"- {line}\n" for line in [*judged[0].words, *lines, *notes, _CAVEAT])
    head = f"# Model search\n\n{bullets}\n[Comparison of the finalists](finalists/index.html)\n\n"
    text = head + as_markdown([tried])
    write_whole(run_dir / "report.md", text.encode())
    print(*lines, f"written to {run_dir / 'report.md'}", sep="\n")


def _front(metric: MetricFigures, costs: Mapping[str, Cost]) -> list[str]:
    """Return notes on the finalists on the Pareto fronts, and cheaper ones that may be as good."""
    best = next(iter(metric.systems))
    pairs = (pair for pair in metric.pairs if pair.first == best and pair.p is not None)
    alike = {pair.second: pair for pair in pairs if not pair.significant}
    lines, worse = [], "higher" if metric.lower else "lower"
    for what, systems in against_cost(metric, costs).items():
        front = pareto_front(systems, metric.lower)
        lines.append(f"Pareto front of {metric.name} and {what}: {', '.join(front)}")
        for name in front:
            timed = what == DECODING and not costs[name].decodes_faster(costs[best])
            if name in alike and not timed:
                costs_of = (systems[system][0] for system in (name, best))
                low, high = (f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}" for cost in costs_of)
                lines.append(
                    f"{name}: {what} {low} instead of {high}; {metric.name} "
                    f"{abs(alike[name].difference):.2f} {worse} than {best} (not significant)"
                )
    return lines


def tried_models(halving: Halving, finalists: Mapping[Candidate, Sequence[Path]]) -> TableDocument:
    """Return the table of tried models, those that were trained longest first."""
    trained = {model.name: losses(paths[0]) for model, paths in finalists.items()}
    rows: list[list[Any]] = []
    for name, trial in halving.latest().items():
        by_step = {**trial.intermediate_values, **trained.get(name, {})}
        step = max(by_step, default=None)
        loss = None if step is None else by_step[step]
        why = trial.user_attrs.get("why", _LATE)
        rows.append([name, step, loss, None if step == halving.budget.steps else why])
    rows.sort(key=lambda row: (-(row[1] or 0), row[2]))
    cells = [[name, step, step and f"{loss:.3f}", why] for name, step, loss, why in rows]
    columns = ["model", "steps", "validation loss", "stopped early"]
    return table("Models tried", columns, cells)
