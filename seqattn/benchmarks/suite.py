"""What every suite is: settings that run, print their tables and return the figures."""

import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Le
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from seqattn.benchmarks.measure import Spread

Threads = Annotated[int, Ge(1), Le(4096)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Cell = str | int | float | Spread | None
Row = dict[str, Cell]
"""A row of a table: cells by the names of their columns."""


class Figures(NamedTuple):
    """A table of figures: rows with the same columns, of which so many are printed."""

    title: str
    rows: Sequence[Row]
    shown: int | None = None


@dataclass(frozen=True, kw_only=True)
class Suite(ABC):
    """One benchmark with all its settings.

    Args:
        threads: of this process and of those that it starts; None leaves it to torch.
        seed: of random weights.
    """

    threads: Threads | None = None
    seed: Seed = 0

    def run(self) -> list[Row]:
        """Measures, prints each table when it is full, and returns the rows of all.

        Raises:
            UserError: where it cannot be measured as asked.
        """
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        found: list[Row] = []
        for figures in self.measure():
            _print(figures)
            found += [{"table": figures.title, **row} for row in figures.rows]
        return found

    @abstractmethod
    def measure(self) -> Iterator[Figures]:
        """Yields table after table, in so many threads."""


def _print(figures: Figures) -> None:
    table = Table(title=figures.title)
    for name, cell in figures.rows[0].items():
        table.add_column(name, justify="left" if isinstance(cell, str) else "right")
    for row in figures.rows[: figures.shown]:
        table.add_row(*map(_text, row.values()))
    screen = Console()  # where the output is no terminal, lines are not cut
    (screen if screen.is_terminal else Console(width=200)).print(table)


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str("" if cell is None else cell)


def write_figures(path: Path, settings: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Writes JSON: the settings, what they were measured on, and the rows as `results`."""
    results = [
        {name: cell._asdict() if isinstance(cell, Spread) else cell for name, cell in row.items()}
        for row in rows
    ]
    machine = {"torch": torch.__version__, "python": platform.python_version(),
               "machine": platform.machine(), "threads": torch.get_num_threads()}  # fmt: skip
    figures = {**machine, "settings": settings, "results": results}
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def profiled(title: str, work: Callable[[], object], piece: str, pieces: int) -> Figures:
    """The operators of some work, the dearest first: shares of all CPU time, and calls.

    Args:
        title: of the table.
        work: does it.
        piece: what its figures are for each of.
        pieces: how many of them it does.
    """
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        work()
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    rows: list[Row] = [
        {
            "operator": str(event.key),
            "share": event.self_cpu_time_total / total,
            f"ms a {piece}": event.self_cpu_time_total / 1000 / pieces,
            f"calls a {piece}": event.count / pieces,
        }
        for event in events
    ]
    return Figures(title, rows, shown=20)
