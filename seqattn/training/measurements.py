"""Reading the CSV log of a training run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from seqattn.inputs import csv_rows


def read_figures(run_dir: Path | None) -> list[dict[str, str]]:
    """Return the rows of a run's CSV log so far, without an incomplete one."""
    return csv_rows(run_dir / "csv" / "version_0" / "metrics.csv") if run_dir else []


def training_of(rows: Sequence[Mapping[str, str]]) -> tuple[float | None, float] | None:
    """Return a training run's seconds and target tokens per second; None if not logged."""
    rates = [row for row in rows if float(row.get("train/tokens_per_second") or 0) > 0]
    if not rates:
        return None
    if not rates[0].get("train/tokens"):
        return None, median(float(row["train/tokens_per_second"]) for row in rates)
    seconds = counted = 0.0
    for row in rates:
        tokens = float(row["train/tokens"])
        seconds += (tokens - counted) / float(row["train/tokens_per_second"])
        counted = tokens
    return (seconds, counted / seconds) if seconds else None
