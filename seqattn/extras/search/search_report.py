"""What a search ends with: finalists compared, a report, and the best as an experiment."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from seqattn.analysis.plots import save
from seqattn.extras.compare.compared_runs import Reading
from seqattn.extras.compare.comparison_figures import DECODING, against_cost
from seqattn.extras.compare.comparison_files import as_markdown, as_page
from seqattn.extras.compare.comparison_plots import Point, cost_panels, pareto_front
from seqattn.extras.compare.comparison_tables import METHODS as STATISTICS
from seqattn.extras.compare.comparison_tables import (
    differing_sentences,
    pair_table,
    system_table,
    table,
)
from seqattn.extras.compare.costs import Cost, measure_costs
from seqattn.extras.compare.judging import MetricFigures, judge
from seqattn.extras.compare.systems import check_alike
from seqattn.extras.search.search_trials import SearchState, Trial, curve_of, left_of
from seqattn.places import shipped
from seqattn.runs.run_tables import TableDocument
from seqattn.storage import write_json, write_whole
from seqattn.training.screen import duration

EXPERIMENT = "found"
_ROUNDS, _TIMED = 5, 200
_METHODS = (
    "Successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943): all models see the same "
    "batches in the same order and are compared after as many tokens, not after as many seconds, "
    "which would depend on what else the machine does. What a step takes stands in the table.",
    "Each trial goes on with its own run. Its rate falls with the inverse square root of the step "
    "after a warm-up, which knows no last step; the experiment trains with its own schedule again.",
    "A trial whose training loss is above the upper quartile of the others' halfway through a rung "
    "is ended there (after Golovin et al. 2017). One finalist's seat is for the smallest cache, so "
    "that the front has another end.",
    "An order after few steps is not always that after many, and the choice and its score are of "
    "one validation split, which makes the score a little too good: train the best in full, and "
    "score it on a split that took no part.",
)


def report(
    home: Path,
    state: SearchState,
    groups: Mapping[str, Sequence[Path]],
    values: Mapping[str, Any],
    options: Sequence[str] = (),
) -> list[str]:
    """Compares the finalists, and writes everything into the folder of a search.

    Args:
        home: the folder.
        state: of the search.
        groups: the runs of each finalist by its name, one for each seed.
        values: what the user typed for train, by key.
        options: of Hydra, that the trials had.

    Returns:
        What it came to, a line each.
    """
    reading = Reading("val", True, "cpu", ())
    systems = {name: [reading.read(run) for run in runs] for name, runs in groups.items()}
    each = [run for runs in systems.values() for run in runs]
    check_alike(each)
    sources = [row.source for row in each[0].rows[:_TIMED]]
    costs = measure_costs(systems, sources, _ROUNDS, "cpu", ())
    load = os.getloadavg()[0]  # of the minute that measured
    judged = judge(systems)
    best = next(iter(judged[0].systems))
    trial = next(one for one in state.trials.values() if one.name == best)
    panels = against_cost(judged[0], costs)
    command = write_experiment(home, trial, state.settings["overrides"], values, options)
    words = [*_choice(best, state), *judged[0].words, *_cheaper(judged[0], panels, costs)]
    tables = [
        system_table("Finalists", each[0].results.data, judged, costs),
        pair_table(judged[0]),
        _trials(state),
        table("What was drawn from the space", [""], [[line] for line in state.drawn]),
    ]
    pictures = {}
    if panels:
        title = f"{judged[0].name} on validation against cost; dashed: what no other beats in both"
        front = cost_panels(panels, title, judged[0].name, judged[0].lower)
        pictures["front"] = save(front, home / "front.png")
    drawn = curves(home, state, list(judged[0].systems))
    pictures["Learning curves"] = save(drawn, home / "curves.png")
    methods = [*_METHODS, f"Speed: the median of {_ROUNDS} rounds in turns; load {load:.1f}.",
               *STATISTICS]  # fmt: skip
    texts = differing_sentences(systems, judged, 3)
    page = as_page("A search for a model", [*words, command], methods, tables, pictures, texts)
    links = "".join(f"![{name}]({path.name})\n\n" for name, path in pictures.items())
    said, how = ("".join(f"- {line}\n" for line in lines) for lines in (words, methods))
    head = f"# A search for a model\n\n{said}\n```bash\n{command}\n```\n\n"
    whole = f"{head}{as_markdown(tables)}\n{links}## Methods\n\n{how}"
    write_whole(home / "report.html", page.encode())
    write_whole(home / "report.md", whole.encode())
    found = {"metrics": [asdict(one) for one in judged], "load": load,
             "costs": {name: asdict(cost) for name, cost in costs.items()}}  # fmt: skip
    write_json(home / "finalists.json", found)
    return [*words, f"written to {home / 'report.html'}", f"to train it in full: {command}"]


def _choice(best: str, state: SearchState) -> list[str]:
    trials = [trial for name, trial in state.trials.items() if "-seed" not in name]
    ended = [f"{sum(t.state == fate for t in trials)} {fate}" for fate in ("stopped", "failed")]
    return [
        f"the best is {best}",
        f"{len(trials)} models were tried in {duration(state.spent)}, {' and '.join(ended)} early; "
        f"the finalists trained for {state.rungs[-1].steps:,} steps",
    ]


def _cheaper(
    metric: MetricFigures,
    panels: Mapping[str, Mapping[str, tuple[float, Point]]],
    costs: Mapping[str, Cost],
) -> list[str]:
    """Which finalists are on the front, and which may be as good as the best for less."""
    best = next(iter(metric.systems))
    alike = {p.second: p for p in metric.pairs if p.first == best and not p.told_apart}
    lines, worse = [], "more" if metric.lower else "less"
    for what, systems in panels.items():
        front = pareto_front(systems, metric.lower)
        lines.append(f"on the front of {metric.name} and {what}: {', '.join(front)}")
        for name in front:
            timed = what == DECODING and not costs[name].decodes_faster(costs[best])
            if name in alike and not timed:
                told = [
                    f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
                    for value in (systems[name][0], systems[best][0])
                ]
                lines.append(
                    f"{name} has {told[0]} in place of {told[1]} {what}, and "
                    f"{abs(alike[name].difference):.2f} {metric.name} {worse} than {best}, from "
                    "which it was not told apart"
                )
    return lines


def _trials(state: SearchState) -> TableDocument:
    """All that was tried, those that came furthest first."""
    steps = [rung.steps for rung in state.rungs]
    rungs = {name: number for number, rung in enumerate(state.rungs) for name in rung.trials}
    order = sorted(state.trials, key=lambda name: (-rungs[name], state.trials[name].loss))
    rows = []
    for name in order:
        one = state.trials[name]
        losses = [f"{one.losses[step]:.3f}" if step in one.losses else None for step in steps]
        cache = None if one.cache_bytes is None else f"{one.cache_bytes:,}"
        rows.append([
            one.name, str(one.seed), str(one.steps), *losses, f"{1000 * one.step_seconds:.0f}",
            f"{one.parameters:,}", cache, f"{one.state}: {one.why}" if one.why else "",
        ])  # fmt: skip
    columns = ["model", "seed", "steps", *(f"val loss at {step}" for step in steps), "ms a step",
               "parameters", "cache, B", "ended early"]  # fmt: skip
    return table("What was tried, and when it was stopped", columns, rows)


def curves(home: Path, state: SearchState, finalists: Sequence[str]) -> Figure:
    """Training losses by step, finalists in colour, dots where validation compared them."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axis = figure.add_subplot()
    for name, trial in sorted(state.trials.items(), key=lambda item: item[1].name in finalists):
        curve, main = curve_of(home / "trials" / name), trial.name in finalists
        color = f"C{finalists.index(trial.name) % 10}" if main else "0.75"
        again = "-seed" in name
        label = trial.name.replace("$", r"\$") if main and not again else None
        style = ":" if again else "-"
        axis.plot([*curve], [*curve.values()], style, color=color, lw=1 + main / 2, label=label)
        axis.plot([*trial.losses], [*trial.losses.values()], "o", color=color, ms=4)
    for rung in state.rungs:
        axis.axvline(rung.steps, color="0.5", lw=0.6, ls="--")
    axis.set(xlabel="optimizer steps; all of a seed see the same batches", ylabel="loss", title="")
    axis.legend(title="finalists (dotted: other seeds); lines: training, dots: validation")
    return figure


def write_experiment(
    home: Path,
    best: Trial,
    words: Sequence[str],
    values: Mapping[str, Any],
    options: Sequence[str] = (),
) -> str:
    """Writes a model as an experiment; returns the command that trains it.

    Args:
        home: the folder of the search.
        best: the model's trial.
        words: what the user typed for train.
        values: the same by key.
        options: of Hydra: where choices of the user's own are.
    """
    keys = [word.partition("=")[0] for word in left_of(words, best.overrides)]
    given = {key: values[key] for key in keys} | {
        key: yaml.safe_load(text) for key, _, text in (w.partition("=") for w in best.overrides)
    }
    groups = {folder.name for folder in shipped("conf").iterdir() if folder.is_dir()}
    base = given.pop("experiment", None)
    defaults: list[Any] = base if isinstance(base, list) else [base] if base else []
    content: dict[str, Any] = {}
    for key, value in given.items():
        if key.partition("@")[0] in groups:
            defaults = [*defaults, {f"override /{key}": value}]
            continue
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    head = f"# @package _global_\n# {best.name}, found by a search: {home / 'report.html'}\n"
    text = yaml.safe_dump({"defaults": [*defaults, "_self_"], **content}, sort_keys=False)
    folder = home / "conf" / "experiment"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{EXPERIMENT}.yaml", (head + text).encode())
    typed = ["--config-dir", str(home / "conf"), *_search_path(options)]
    return f"python train.py {shlex.join(typed)} experiment={EXPERIMENT}"


def _search_path(options: Sequence[str]) -> list[str]:
    """The folders that options of Hydra name, as a setting: it takes one --config-dir alone."""
    key, found = "hydra.searchpath=[", []
    for before, word in pairwise(["", *options]):
        if before == "--config-dir":
            path = word.replace("\\", "\\\\").replace('"', '\\"')
            found.append(f'"file://{path}"')
        elif word.startswith(key):
            found.append(word.removeprefix(key).removesuffix("]"))
    return [f"{key}{','.join(found)}]"] if found else []
