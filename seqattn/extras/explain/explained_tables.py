"""Tables of `explain` for the report and the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seqattn.verbs.run_tables import TableDocument

_COLUMNS = {
    "AER": ("alignment_error_rate", 1),
    "comprehensiveness": ("comprehensiveness", 3),
    "sufficiency": ("sufficiency", 3),
    "tau": ("correlation", 3),
    "seconds": ("seconds_per_sentence", 4),
}
_METHODS_MEAN = (
    "AER: the less the better; comprehensiveness: the more; sufficiency: the less; tau is 1 for "
    "the order of leave-one-out; seconds are of a sentence"
)
METHOD_DIGITS = tuple(digits for _, digits in _COLUMNS.values())
"""Decimals of each column."""


def methods_table(what: str, results: Mapping[str, Any]) -> TableDocument:
    """Return a row for each method. Args: results: methods of a bundle, as in explanations.json."""
    rows: list[list[str | float | None]] = [
        [method, *(rounded(row.get(key), digits) for key, digits in _COLUMNS.values())]
        for method, row in results["methods"].items()
    ]
    left = f", {results['left_out']} left out" if results["left_out"] else ""
    notes = [
        f"{results['sentences']:,} sentences{left}; a target token's probability is "
        f"{results['probability']:.3f}",
        *(f"{name}: {why}" for name, why in results["cannot_be_had"].items()),
        *([slow_note(results["slow"])] if results["slow"] else []),
        _METHODS_MEAN,
    ]
    columns = ["method", *_COLUMNS]
    return {"title": f"Explanations of {what}", "columns": columns, "rows": rows, "notes": notes}


def slow_note(names: Sequence[str]) -> str:
    """Return a note on slow methods that were skipped, and how to request them."""
    return (
        f"left out, for they take seconds a sentence: {', '.join(names)}; to have them, name all "
        f"that you want: methods=[attention,{','.join(names)}]"
    )


def replaced_table(split: str, edits: Sequence[str], replaced: Mapping[str, Any]) -> TableDocument:
    """Return a row for each part whose attention is replaced. Args: replaced: as in the file."""
    title = f"Scores of {split} with other weights of attention"
    if "cannot_be_had" in replaced:
        reason = replaced["cannot_be_had"]
        return {"title": title, "columns": ["attention"], "rows": [], "notes": [reason]}
    trained = replaced["as_trained"]
    shown = [score.replace("log-probability", "log p") for score in trained]
    columns = ["attention", *(f"{edit} {score}" for edit in edits for score in shown)]
    scores = {"as trained": list(trained.values()) * len(edits)}
    for part in replaced[edits[0]]:
        scores[part] = [one for edit in edits for one in replaced[edit][part].values()]
    rows: list[list[str | float | None]] = [
        [part, *(rounded(one, 2) for one in several)] for part, several in scores.items()
    ]
    without = ", ".join(replaced["without"])
    notes = [f"{without} mix without weights, and stay as they are"] if without else []
    return {"title": title, "columns": columns, "rows": rows, "notes": notes}


def rounded(value: float | None, digits: int) -> float | None:
    """Return a cell rounded to `digits`; None for NaN or infinity."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
