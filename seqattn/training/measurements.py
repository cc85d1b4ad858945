"""What the CSV logger has written of a training, read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from seqattn.inputs import csv_rows


def read_figures(home: Path | None) -> list[dict[str, str]]:
    """The rows that a run's csv logger has written so far, without one that is cut."""
    return csv_rows(home / "csv" / "version_0" / "metrics.csv") if home else []


def training_of(rows: Sequence[Mapping[str, str]]) -> tuple[float | None, float] | None:
    """Seconds of a training, and target tokens a second; None where neither was logged."""
    rates = [row for row in rows if float(row.get("train/tokens_per_second") or 0) > 0]
    if not rates:
        return None
    if not rates[0].get("train/tokens"):
        return None, median(float(row["train/tokens_per_second"]) for row in rates)
    seconds = before = 0.0
    for row in rates:
        tokens = float(row["train/tokens"])
        seconds += (tokens - before) / float(row["train/tokens_per_second"])
        before = tokens
    return (seconds, before / seconds) if seconds else None
