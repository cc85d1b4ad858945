"""Document of a bundle: settings, scores and costs from its own files and those of its run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.extras.report.document_types import BundleDocument, CurveDocument, ScoreDocument
from seqattn.metrics.text import TextScore
from seqattn.screen import duration
from seqattn.settings.documents import WEIGHTS
from seqattn.settings.nodes import TARGET
from seqattn.subcommands.run_tables import run_tables
from seqattn.training.measurements import read_figures, training_of

_MOST_POINTS = 400
_CLOCKS = ("epoch", "step", "train/seconds_left")
"""Columns that count steps or time, which say nothing of learning."""


def bundle_document(
    name: str, bundle: Bundle, page_scores: Sequence[TextScore] = (), seconds: float | None = None
) -> BundleDocument:
    """Return the document of a bundle.

    Args:
        name: name on the page.
        bundle: loaded from `RUN/model`; other files of RUN are read if present.
        page_scores: scores of the sentences on the page.
        seconds: time to decode these; None if not measured.
    """
    run = bundle.path.parent
    rows = read_figures(run)
    curves = learning_curves(rows)
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    facts = {
        "parameters": f"{size:,}",
        "weights file": f"{(bundle.path / WEIGHTS).stat().st_size / 1e6:,.1f} MB",
        "vocabulary": _vocabulary(bundle),
    }
    if trained := training_of(rows):
        took, rate = trained
        steps = (curve["steps"][-1] for curve in curves if not curve["name"].startswith("final/"))
        facts["steps"] = f"{max(steps) + 1:,}"
        facts["training"] = "" if took is None else f"{duration(took)} excluding validation, "
        facts["training"] += f"{rate:,.0f} target tokens per second"
    if seconds is not None:
        facts["time to analyze these sentences"] = f"{seconds:,.1f} s"
    return {
        "name": name,
        "kind": bundle.output,
        "facts": facts,
        "settings": flat(bundle.config),
        "scores": [*saved_scores(bundle.scores), *(_score(score) for score in page_scores)],
        "curves": curves,
        "tables": run_tables(run),
    }


def _score(one: TextScore) -> ScoreDocument:
    return {"name": f"{one.name} on this page", "value": one.value, "signature": one.signature}


def saved_scores(scores: Mapping[str, Any]) -> list[ScoreDocument]:
    """Return the scores stored in a bundle, each with its signature if it has one."""
    mark = " signature"
    return [
        {"name": name, "value": float(value), "signature": str(scores.get(name + mark, ""))}
        for name, value in scores.items()
        if isinstance(value, int | float)
    ]


def _vocabulary(bundle: Bundle) -> str:
    tokenizer = bundle.tokenizer
    if tokenizer.joint:
        return f"{tokenizer.source_size:,} pieces, shared by both sides"
    return f"{tokenizer.source_size:,} source and {tokenizer.target_size:,} target pieces"


def flat(node: Any, key: str = "") -> dict[str, str]:
    """Flatten a configuration to dotted keys, with types reduced to their names."""
    if isinstance(node, Mapping):
        parts = ((f"{key}.{name}" if key else str(name), part) for name, part in node.items())
    elif isinstance(node, list) and any(isinstance(part, Mapping | list) for part in node):
        parts = ((f"{key}.{number}", part) for number, part in enumerate(node))
    else:
        return {key: str(node).rpartition(".")[2] if key.endswith(TARGET) else str(node)}
    return {name: value for path, part in parts for name, value in flat(part, path).items()}


def learning_curves(rows: Sequence[Mapping[str, str]]) -> list[CurveDocument]:
    """Return a training run's measurements; long curves are thinned, but keep their last point."""
    points: dict[str, list[tuple[int, float]]] = {}  # finite values, which can be plotted
    for row in rows:
        step = row.get("step")
        for name, value in row.items():
            if name in _CLOCKS or not (value and step):
                continue
            if math.isfinite(float(value)):
                points.setdefault(name, []).append((int(step), float(value)))
    curves: list[CurveDocument] = []
    for name, pairs in sorted(points.items(), key=lambda one: (one[0].startswith("final/"), one)):
        every = len(pairs) // _MOST_POINTS + 1
        thinned = pairs[(len(pairs) - 1) % every :: every]
        steps, values = (
            [step for step, _ in thinned],
            [float(f"{value:.6g}") for _, value in thinned],
        )
        curves.append({"name": name, "steps": steps, "values": values})
    return curves
