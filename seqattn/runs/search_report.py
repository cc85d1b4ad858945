"""What a search tells: pictures, a report as Markdown and HTML, and the best as an experiment."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqattn.analysis.plots import save
from seqattn.places import shipped
from seqattn.runs.search_finalists import ROUNDS, Finalist, Outcome
from seqattn.runs.search_halving import SearchState
from seqattn.runs.search_trials import Trial, curve_of, left_of
from seqattn.storage import write_whole
from seqattn.training.screen import duration

EXPERIMENT = "found"
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
_METHOD = (
    "Method: successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943). All models see "
    "the same batches in the same order, so that a model is compared after as many tokens, not "
    "after as many seconds: that does not depend on what else the machine does, and what a step "
    "takes stands beside it. Each goes on with its own run. The rate of a trial is the inverse "
    "square root of the step after a warm-up, which knows no last step; the experiment below "
    "trains with its own schedule again. A trial whose training loss is above the median of the "
    "others halfway through a rung is ended there (Golovin et al. 2017).",
    "What it cannot tell: an order after few steps is not always that after many; scores and "
    "choice are of one validation split, so that the best one's score is a little too good. Train "
    "the best in full, and score it on a split that took no part.",
)


class Block(NamedTuple):
    """A part of the report: a heading, paragraphs, a table with its columns first, a picture."""

    heading: str
    paragraphs: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    picture: str = ""
    code: str = ""


def write_report(
    home: Path, state: SearchState, outcome: Outcome, values: Mapping[str, Any]
) -> str:
    """Writes everything into the folder of a search.

    Args:
        home: the folder.
        state: of the search.
        outcome: of its finalists.
        values: what the user typed for train, by key.

    Returns:
        The command that trains the best.
    """
    write_whole(home / "finalists.json", outcome.model_dump_json(indent=1).encode())
    best = state.trials[outcome.finalists[0].trials[0]]
    command = write_experiment(home, best, state.settings["overrides"], values)
    save(curves(home, state, outcome), home / "curves.png")
    save(tried(state, outcome), home / "tried.png")
    save(front(outcome), home / "front.png")
    blocks = _blocks(state, outcome, command)
    write_whole(home / "report.md", as_markdown(blocks).encode())
    write_whole(home / "report.html", as_html(blocks, home).encode())
    return command


def write_experiment(
    home: Path, best: Trial, words: Sequence[str], values: Mapping[str, Any]
) -> str:
    """Writes a model as an experiment; returns the command that trains it.

    Args:
        home: the folder of the search.
        best: the model's trial.
        words: what the user typed for train.
        values: the same by key.
    """
    kept = [word.partition("=")[0] for word in left_of(words, best.overrides)]
    given = {key: values[key] for key in kept if key in values and key != "run_dir"}
    for word in best.overrides:
        key, _, text = word.partition("=")
        given[key] = yaml.safe_load(text)
    groups = {folder.name for folder in shipped("conf").iterdir() if folder.is_dir()}
    experiment = given.pop("experiment", None)
    defaults: list[Any] = [experiment] if isinstance(experiment, str) else list(experiment or ())
    content: dict[str, Any] = {}
    for key, value in given.items():
        if key.partition("@")[0] in groups:
            defaults.append({f"override /{key}": value})
            continue
        place = content
        *parents, last = key.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    head = f"# @package _global_\n# {best.name}: found by a search, see {home / 'report.html'}.\n"
    text = yaml.safe_dump({"defaults": [*defaults, "_self_"], **content}, sort_keys=False)
    folder = home / "conf" / "experiment"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{EXPERIMENT}.yaml", (head + text).encode())
    return f"python train.py --config-dir {home / 'conf'} experiment={EXPERIMENT}"


def curves(home: Path, state: SearchState, outcome: Outcome) -> Figure:
    """Training losses by step, finalists in colour, and the losses by which rungs were judged."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axis = figure.add_subplot()
    colours = _colours(outcome)
    for name, trial in sorted(state.trials.items(), key=lambda item: item[1].name in colours):
        curve = curve_of(home / "trials" / name)
        colour, main = colours.get(trial.name, "#bbbbbb"), trial.name in colours
        first = main and trial.seed == min(t.seed for t in state.trials.values())
        axis.plot(
            list(curve), list(curve.values()), color=colour, lw=1.4 if main else 0.7,
            ls="-" if first or not main else ":", label=trial.name if first else None,
        )  # fmt: skip
        axis.plot(list(trial.losses), list(trial.losses.values()), "o", color=colour, ms=4)
    for rung in state.rungs:
        axis.axvline(rung.steps, color="#888888", lw=0.6, ls="--")
    axis.set_xlabel("optimizer steps (the same batches for all); dashed: where models are compared")
    axis.set_ylabel("loss: lines training, dots validation")
    axis.legend(title="finalists (dotted: other seeds)", fontsize=8)
    return figure


def tried(state: SearchState, outcome: Outcome) -> Figure:
    """How far each model came, and what became of it."""
    order = [n for n in _order(state) if "-seed" not in n]
    figure = Figure(figsize=(9, 1.2 + 0.26 * len(order)), layout="constrained")
    axis, colours = figure.add_subplot(), _colours(outcome)
    for row, name in enumerate(order):
        trial = state.trials[name]
        fate = {"stopped": "#f4c27a", "failed": "#e58a8a"}.get(trial.state, "#c8d4e0")
        axis.barh(row, max(trial.steps, 1), color=colours.get(trial.name, fate), height=0.7)
        loss = f"{trial.loss:.3f}" if trial.losses else ""
        words = {"stopped": "stopped", "failed": "failed"}.get(trial.state, "")
        axis.text(trial.steps, row, f" {loss} {words}", va="center", fontsize=7)
    for rung in state.rungs:
        axis.axvline(rung.steps, color="#888888", lw=0.6, ls="--")
    axis.set_yticks(range(len(order)), [state.trials[n].name for n in order], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, state.rungs[-1].steps * 1.15)
    axis.set_xlabel("steps trained, with the last validation loss; in colour: the finalists")
    return figure


def front(outcome: Outcome) -> Figure:
    """Score beside each cost; bars go over the seeds or the rounds."""
    costs = [
        (f"{outcome.unit} a second", lambda one: one.rate, True),
        ("cache, KiB for 32 + 32 tokens", lambda one: (one.cache_bytes or 0) / 1024, False),
        ("parameters, thousands", lambda one: one.parameters / 1000, False),
    ]
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for number, (label, cost, more) in enumerate(costs):
        axis = figure.add_subplot(1, 3, number + 1)
        _panel(axis, outcome, cost, more)
        axis.set_xlabel(f"{label} ({'right' if more else 'left'} is better)")
    figure.axes[0].set_ylabel(f"{outcome.metric} on validation")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
    return figure


def _panel(axis: Axes, outcome: Outcome, cost: Any, more: bool) -> None:
    colours, edge = _colours(outcome), []
    for one in sorted(outcome.finalists, key=lambda one: (-one.score, -cost(one))):
        spread = [[one.score - min(one.of_seeds)], [max(one.of_seeds) - one.score]]
        across = [[one.rate - one.slowest], [one.quickest - one.rate]] if more else None
        axis.errorbar(
            cost(one), one.score, yerr=spread, xerr=across, color=colours[one.name], capsize=3,
            marker="o" if one.front else "x", ms=8, label=one.name,
        )  # fmt: skip
        best = max if more else min
        if not edge or best(cost(one), edge[-1][0]) != edge[-1][0]:
            edge.append((cost(one), one.score))
    axis.step(*zip(*edge, strict=True), where="pre", color="#999999", lw=0.8, zorder=0)
    axis.grid(alpha=0.2)


def _colours(outcome: Outcome) -> dict[str, str]:
    many = (_COLOURS * (1 + len(outcome.finalists) // len(_COLOURS)))[: len(outcome.finalists)]
    return {one.name: colour for one, colour in zip(outcome.finalists, many, strict=True)}


def _order(state: SearchState) -> list[str]:
    """All trials, those that came furthest first, then by their loss."""
    rungs = [max(n for n, r in enumerate(state.rungs) if name in r.trials) for name in state.trials]
    rows = zip(rungs, state.trials.items(), strict=True)
    return [
        name for _, (name, _) in sorted(rows, key=lambda row: (-row[0], row[1][1].loss, row[1][0]))
    ]


def _blocks(state: SearchState, outcome: Outcome, command: str) -> list[Block]:
    best = outcome.finalists[0]
    fates = [trial.state for name, trial in state.trials.items() if "-seed" not in name]
    cost = f"{duration(state.spent)} on {state.cores} core{'s' if state.cores > 1 else ''}"
    ended = [f"{fates.count(fate)} {fate}" for fate in ("stopped", "failed") if fate in fates]
    summary = f"{len(fates)} models were tried in {cost}" + (
        f" ({', '.join(ended)} early)" if ended else ""
    )
    return [
        Block("The choice", [f"**{best.name}**: {_sized(best, outcome)}.", f"{summary}."]),
        Block("To train it in full", code=command),
        Block("How sure it is", _how_sure(outcome)),
        Block("Finalists", _notes(outcome), _finalist_rows(outcome), "front.png"),
        Block("What was drawn", [f"{line}." for line in state.drawn]),
        Block("What was tried", ["Losses are on validation, at the end of each rung."],
              _trial_rows(state), "tried.png"),
        Block("Learning curves", picture="curves.png"),
        Block("Method", _METHOD),
    ]  # fmt: skip


def _sized(one: Finalist, outcome: Outcome) -> str:
    cache = "" if one.cache_bytes is None else f", {one.cache_bytes:,} bytes of cache"
    return (
        f"{outcome.metric} {one.score:.2f}, {one.rate:,.0f} {outcome.unit} a second, "
        f"{one.parameters:,} parameters{cache}"
    )


def _how_sure(outcome: Outcome) -> list[str]:
    best, seeds = outcome.finalists[0], len(outcome.finalists[0].of_seeds)
    lines = [f"{one.told}." for one in outcome.differences]
    equals = [one.second for one in outcome.differences if not one.is_sure]
    cheap = [
        one for one in outcome.finalists[1:]
        if one.front and one.name in equals
    ]  # fmt: skip
    if equals:
        lines.insert(0, "**The order of the first is not settled.** See what overlaps.")
    for one in cheap:
        lines.append(
            f"{one.name} is on the front and as good as {best.name} as far as this can tell: "
            f"{_sized(one, outcome)}."
        )
    by_loss = min(outcome.finalists, key=lambda one: one.loss)
    if by_loss is not best:
        lines.append(f"By validation loss {by_loss.name} would be the first.")
    resampled = f"Sentences ({outcome.rows:,}) are drawn with replacement, the same for both"
    if seeds == 1:
        return [*lines, f"{resampled}. One seed: how much another would change is not known."]
    return [*lines, f"{resampled}, and the {seeds} seeds of each, which are few."]


def _notes(outcome: Outcome) -> list[str]:
    return [
        f"{outcome.metric}: {outcome.finalists[0].signature}, the mean over seeds. Speed: the "
        f"median of {ROUNDS} rounds in which all decode in turns, on one thread, with nothing else "
        f"of this search; the machine's load was {outcome.load:.1f}. Cache: what one hypothesis "
        "keeps after 32 tokens of source and target. Front: no other is as good in score, speed, "
        "cache and parameters and better in one (circles in the picture)."
    ]


def _finalist_rows(outcome: Outcome) -> list[list[str]]:
    head = ["", outcome.metric, "of seeds", "val loss", f"{outcome.unit} a second", "rounds",
            "cache, bytes", "parameters", "front"]  # fmt: skip
    return [head] + [
        [
            one.name, f"{one.score:.2f}", " ".join(f"{score:.2f}" for score in one.of_seeds),
            f"{one.loss:.3f}", f"{one.rate:,.0f}", f"{one.slowest:,.0f} to {one.quickest:,.0f}",
            "-" if one.cache_bytes is None else f"{one.cache_bytes:,}", f"{one.parameters:,}",
            "yes" if one.front else "",
        ]
        for one in outcome.finalists
    ]  # fmt: skip


def _trial_rows(state: SearchState) -> list[list[str]]:
    steps = [rung.steps for rung in state.rungs]
    head = ["", "seed", "steps", *(f"loss at {step}" for step in steps), "ms a step",
            "memory, MB", "parameters", "end"]  # fmt: skip
    rows = [head]
    for name in _order(state):
        one = state.trials[name]
        losses = [f"{one.losses[step]:.3f}" if step in one.losses else "" for step in steps]
        end = f"{one.state}: {one.why}" if one.why else ""
        speed = f"{1000 * one.step_seconds:.0f}" if one.seconds else ""
        rows.append([
            one.name, str(one.seed), f"{one.steps}", *losses, speed, f"{one.memory_mb:.0f}",
            f"{one.parameters:,}", end,
        ])  # fmt: skip
    return rows


def as_markdown(blocks: Sequence[Block]) -> str:
    """The report as Markdown."""
    lines = ["# A search for a model", ""]
    for block in blocks:
        lines += [f"## {block.heading}", ""]
        for paragraph in block.paragraphs:
            lines += [paragraph, ""]
        if block.code:
            lines += ["```bash", block.code, "```", ""]
        if block.table:
            rows = [[cell.replace("|", "\\|") for cell in row] for row in block.table]
            rows.insert(1, ["---"] * len(rows[0]))
            lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
        if block.picture:
            lines += [f"![{block.heading}]({block.picture})", ""]
    return "\n".join(lines)


def as_html(blocks: Sequence[Block], home: Path) -> str:
    """The report as one page. Args: home: where its pictures are."""
    body = ["<h1>A search for a model</h1>"]
    for block in blocks:
        body.append(f"<h2>{html.escape(block.heading)}</h2>")
        for paragraph in block.paragraphs:
            parts = html.escape(paragraph).split("**")  # every second one is bold
            bold = (f"<b>{part}</b>" if n % 2 else part for n, part in enumerate(parts))
            body.append(f"<p>{''.join(bold)}</p>")
        if block.code:
            body.append(f"<pre>{html.escape(block.code)}</pre>")
        if block.table:
            cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in r) for r in block.table)
            body.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")
        if block.picture:
            data = base64.b64encode((home / block.picture).read_bytes()).decode("ascii")
            alt = html.escape(block.heading)
            body.append(f'<img alt="{alt}" src="data:image/png;base64,{data}">')
    style = (
        "body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
        "td{padding:2px 8px;border-bottom:1px solid #ddd}tr:first-child{font-weight:bold}"
        "img{max-width:100%}pre{background:#eee;padding:.7em}table{border-collapse:collapse}"
    )
    head = f'<meta charset="utf-8"><title>Search</title><style>{style}</style>'
    return f"<!doctype html><html lang=en>{head}{''.join(body)}</html>\n"
