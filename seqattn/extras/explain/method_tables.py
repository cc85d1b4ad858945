"""Tables of `explain` for the report and the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqattn.subcommands.run_tables import TableDocument

_COLUMNS = {
    "AER": ("alignment_error_rate", 1),
    "comprehensiveness": ("comprehensiveness", 3),
    "sufficiency": ("sufficiency", 3),
    "tau": ("correlation", 3),
    "seconds": ("seconds_per_sentence", 4),
}
_METHODS_MEAN = (
    "lower is better for AER and sufficiency, higher for comprehensiveness; tau: rank correlation "
    "with leave-one-out; seconds: per sentence"
)
METHOD_DIGITS = tuple(digits for _, digits in _COLUMNS.values())
"""Decimals of each column."""


def methods_table(what: str, results: Mapping[str, Any]) -> TableDocument:
    """Return a row for each method. Args: results: methods of a bundle, as in explanations.json."""
    rows: list[list[str | float | None]] = [
        [method, *(rounded(row.get(key), digits) for key, digits in _COLUMNS.values())]
        for method, row in results["methods"].items()
    ]
    skipped = f" ({results['left_out']} skipped)" if results["left_out"] else ""
    notes = [
        f"{results['sentences']:,} sentences{skipped}; mean probability of a target token: "
        f"{results['probability']:.3f}",
        *(f"{name}: {why}" for name, why in results["cannot_be_had"].items()),
        *([slow_note(results["slow"])] if results["slow"] else []),
        _METHODS_MEAN,
    ]
    columns = ["method", *_COLUMNS]
    return {"title": f"Explanations: {what}", "columns": columns, "rows": rows, "notes": notes}


def slow_note(names: Sequence[str]) -> str:
    """Return a note on slow methods that were skipped, and how to request them."""
    return (
        f"skipped, because they take seconds per sentence: {', '.join(names)}; to include them, "
        f"list all methods you want: methods=[attention,{','.join(names)}]"
    )


def replaced_table(split: str, edits: Sequence[str], replaced: Mapping[str, Any]) -> TableDocument:
    """Return a row for each part whose attention is replaced. Args: replaced: as in the file."""
    title = f"Scores on {split} with replaced attention weights"
    if "cannot_be_had" in replaced:
        reason = replaced["cannot_be_had"]
        return {"title": title, "columns": ["attention"], "rows": [], "notes": [reason]}
    trained = replaced["as_trained"]
    score_names = [score.replace("log-probability", "log p") for score in trained]
    columns = ["attention", *(f"{edit} {score}" for edit in edits for score in score_names)]
    scores = {"as trained": list(trained.values()) * len(edits)}
    for part in replaced[edits[0]]:
        scores[part] = [value for edit in edits for value in replaced[edit][part].values()]
    rows: list[list[str | float | None]] = [
        [part, *(rounded(value, 2) for value in values)] for part, values in scores.items()
    ]
    without = ", ".join(replaced["without"])
    notes = [f"unchanged, because they have no attention weights: {without}"] if without else []
    return {"title": title, "columns": columns, "rows": rows, "notes": notes}


def rounded(value: float | None, digits: int) -> float | None:
    """Return a cell rounded to `digits`; None for NaN or infinity."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
