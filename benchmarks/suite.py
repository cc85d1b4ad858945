"""What every suite is: contestants that take turns, and the tables of how they compare."""

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

    `seconds` on the wall, `cpu_seconds` of its process on all cores (which a busy machine disturbs
    less), `units` of work done: target tokens in training, generated tokens in decoding.
    """

    seconds: float
    cpu_seconds: float
    units: int


class Spread(NamedTuple):
    """The middle of several values, and their ends."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        median, low, high = (f"{x:,.0f}" if x >= 1000 else f"{x:.2f}" for x in self)
        return f"{median} ({low} to {high})"


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

    threads: Annotated[int, Ge(1), Le(4096)] | None = None
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
        """Yields table after table."""


def timed(work: Callable[[], int]) -> Sample:
    """Does `work`, which returns its units, and times it."""
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    return Sample(time.perf_counter() - wall, time.process_time() - cpu, units)


def take_turns(
    contestants: Mapping[Name, Callable[[Piece], Sample]], pieces: Sequence[Piece]
) -> dict[Name, list[Sample]]:
    """In each round every contestant does the same piece of work; every other round backwards."""
    samples: dict[Name, list[Sample]] = {name: [] for name in contestants}
    for number, piece in enumerate(pieces):
        for name in list(contestants)[:: 1 if number % 2 else -1]:
            samples[name].append(contestants[name](piece))
    return samples


def rates(samples: Sequence[Sample]) -> Spread:
    """Units a second, over the rounds."""
    return Spread.of([sample.units / sample.seconds for sample in samples])


def ratios(samples: Sequence[Sample], others: Sequence[Sample], cpu: bool = False) -> Spread:
    """How many times as fast `samples` are as `others` in each round, by wall or by CPU time.

    Comparing within a round lets a machine's slow drift cancel; the median lets a round that
    something else disturbed count for one.

    Raises:
        ValueError: where a round's work differed.
    """
    pairs = list(zip(samples, others, strict=True))
    for own, other in pairs:
        if own.units != other.units:
            raise ValueError(f"a round's work must be equal, got {own.units} and {other.units}")
    return Spread.of([other[int(cpu)] / max(own[int(cpu)], 1e-9) for own, other in pairs])


def profiled(title: str, work: Callable[[], object], piece: str, pieces: int) -> Figures:
    """The operators of so many pieces of work, the dearest first: shares of all CPU time, calls."""
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


def _print(figures: Figures) -> None:
    table = Table(title=figures.title)
    for name, cell in figures.rows[0].items():
        table.add_column(name, justify="left" if isinstance(cell, str) else "right")
    for row in figures.rows[: figures.shown]:
        table.add_row(*map(_text, row.values()))
    screen = Console(markup=False, emoji=False)  # names may have [brackets] and :colons:
    if not screen.is_terminal:  # which would cut lines
        screen.width = 200
    screen.print(table)


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str("" if cell is None else cell)


def write_figures(path: Path, settings: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Writes JSON: the settings, what they were measured on, and the rows as `results`."""
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
