"""Base of suites: contestants that take turns, and tables that compare them."""

import json
import platform
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import torch
from annotated_types import Ge, Le
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from seqattn.checking import Seed

Name = TypeVar("Name")
Piece = TypeVar("Piece")


class Sample(NamedTuple):
    """One timed piece of work.

    Has wall-clock `seconds`, `cpu_seconds` of its process on all cores (less sensitive to other
    load), and `units` of work done: target tokens in training, generated tokens in decoding.
    """

    seconds: float
    cpu_seconds: float
    units: int


class Spread(NamedTuple):
    """Median, minimum and maximum of several values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Compute the spread of one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        median, low, high = (f"{x:,.0f}" if x >= 1000 else f"{x:.2f}" for x in self)
        return f"{median} ({low} to {high})"


Cell = str | int | float | Spread | None
Row = dict[str, Cell]
"""Row of a table: cells by column."""


class Figures(NamedTuple):
    """Table of figures: rows with the same columns, and how many of these to print."""

    title: str
    rows: Sequence[Row]
    shown: int | None = None


@dataclass(frozen=True, kw_only=True)
class Suite(ABC):
    """Benchmark with all its settings.

    Args:
        threads: threads of this process and of its children; None for torch's default.
        seed: seed of random weights.
    """

    threads: Annotated[int, Ge(1), Le(4096)] | None = None
    seed: Seed = 0

    def run(self) -> list[Row]:
        """Measure, print each table when it is complete, and return the rows of all.

        Raises:
            UserError: if it cannot be measured as requested.
        """
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        rows: list[Row] = []
        for figures in self.measure():
            _print(figures)
            rows += [{"table": figures.title, **row} for row in figures.rows]
        return rows

    @abstractmethod
    def measure(self) -> Iterator[Figures]:
        """Yield the tables."""


def timed(work: Callable[[], int]) -> Sample:
    """Run `work`, which returns its units, and time it."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, units)


def take_turns(
    contestants: Mapping[Name, Callable[[Piece], Sample]], pieces: Sequence[Piece]
) -> dict[Name, list[Sample]]:
    """Run the same pieces of work with every contestant, reversing the order every other round."""
    samples: dict[Name, list[Sample]] = {name: [] for name in contestants}
    for number, piece in enumerate(pieces):
        for name in list(contestants)[:: 1 if number % 2 else -1]:
            samples[name].append(contestants[name](piece))
    return samples


def rates(samples: Sequence[Sample]) -> Spread:
    """Return units per second, over the rounds."""
    return Spread.of([sample.units / sample.seconds for sample in samples])


def ratios(samples: Sequence[Sample], others: Sequence[Sample], cpu: bool = False) -> Spread:
    """Return the speed of `samples` relative to `others` in each round, by wall or CPU time.

    Comparing within a round cancels a slow drift of the machine; the median limits the effect of a
    disturbed round.

    Raises:
        ValueError: if the work of a round differed.
    """
    pairs = list(zip(samples, others, strict=True))
    for own, other in pairs:
        if own.units != other.units:
            raise ValueError(f"a round's work must be equal, got {own.units} and {other.units}")
    return Spread.of([other[int(cpu)] / max(own[int(cpu)], 1e-9) for own, other in pairs])


def profiled(title: str, work: Callable[[], object], piece: str, pieces: int) -> Figures:
    """Profile operators over pieces of work, slowest first, with shares of CPU time and calls."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        work()
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    rows: list[Row] = [
        {
            "operator": str(event.key),
            "share": event.self_cpu_time_total / total,
            f"ms/{piece}": event.self_cpu_time_total / 1000 / pieces,
            f"calls/{piece}": event.count / pieces,
        }
        for event in events
    ]
    return Figures(title, rows, shown=20)


def _print(figures: Figures) -> None:
    table = Table(title=figures.title)
    for name, cell in figures.rows[0].items():
        table.add_column(name, justify="left" if isinstance(cell, str) else "right")
    for row in figures.rows[: figures.shown]:
        table.add_row(*map(_text, row.values()))
    screen = Console(markup=False, emoji=False)  # names may have [brackets] and :colons:
    if not screen.is_terminal:  # otherwise lines would be cut
        screen.width = 200
    screen.print(table)


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str("" if cell is None else cell)


def write_figures(path: Path, settings: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Write settings, machine and rows (as `results`) as JSON."""
    figures = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "settings": settings,
        "results": [
            {name: x._asdict() if isinstance(x, Spread) else x for name, x in row.items()}
            for row in rows
        ],
    }
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
