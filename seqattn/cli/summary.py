"""The table at the end of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from seqattn.cli.tables import console


def print_summary(
    run_dir: Path,
    steps: int,
    best: str,
    scores: Mapping[str, Any],
    seconds: float,
    speed: Mapping[str, float],
    unit: str,
) -> None:
    """Prints what a run came to.

    Args:
        run_dir: its directory.
        steps: optimizer steps taken.
        best: which weights the bundle holds, in words.
        scores: on the validation split.
        seconds: of training, validation included.
        speed: `Throughput.summary()`.
        unit: of its tokens.
    """
    rows = {"steps": f"{steps:,}", "weights kept": best}
    for name, value in scores.items():
        rows[name] = f"{value:.4g}" if isinstance(value, float) else str(value)
    minutes, rest = divmod(round(seconds), 60)
    rows["time"] = f"{minutes} min {rest} s"
    rows[f"{unit} a second"] = f"{speed['tokens_per_second']:,.0f}"
    rows["padding"] = f"{speed['padding_share']:.1%}"
    rows["waiting for data"] = f"{speed['waiting_share']:.1%}"
    rows["bundle"] = str(run_dir / "model")
    print_table("Training", rows)


def print_table(title: str, rows: Mapping[str, str]) -> None:
    """Prints names and values in two columns, uncut where the output is no terminal."""
    table = Table(title=title, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # a signature that is cut reproduces nothing
    for name, value in rows.items():
        table.add_row(name, value)
    console().print(table)


def print_comparison(
    title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]], notes: Sequence[str]
) -> None:
    """Prints a row of values for each name, a column for each thing compared, and notes below."""
    table = Table("", title=title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in rows.items():
        table.add_row(name, *values)
    screen = console()
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, markup=False, soft_wrap=True)
