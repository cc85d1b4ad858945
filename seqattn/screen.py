"""What commands show: tables, and how far a long work is, as a bar or a line now and then."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

EVERY = 30.0
"""Seconds from one line to the next where there is no terminal."""


def duration(seconds: float) -> str:
    """A time as one says it, such as `8 min 30 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Screen(Progress):
    """A bar on standard error with the time left and figures beneath it, gone when it is done.

    Args:
        unit: what is counted.
        above: whether what is printed meanwhile stands above the bar; else it goes its own way.
    """

    figures = ""

    def __init__(self, unit: str, above: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn())
        super().__init__(
            *columns, TextColumn(unit), TimeRemainingColumn(), console=Console(stderr=True),
            transient=True, refresh_per_second=2, speed_estimate_period=300,
            redirect_stdout=above, redirect_stderr=above,
        )  # fmt: skip

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.figures:
            yield self.figures


@contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int, int | None], object]]:
    """Shows how far a piece of work is, and how long it still takes.

    Args:
        what: the work, such as "generating".
        unit: what it is counted in.

    Yields:
        What is to be told how many are done, and of how many; None where nobody knows.
    """
    began = told = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        nonlocal told
        now = time.monotonic()
        if done and sys.stderr is not None and now - told >= EVERY:
            told, line = now, f"{what} · {done:,} {unit}"
            if total is not None:
                left = (now - began) / done * (total - done)
                line = f"{what} · {done:,} of {total:,} {unit} · {duration(left)} left"
            print(line, file=sys.stderr, flush=True)

    if sys.stderr is None or not sys.stderr.isatty():
        yield tell
        return
    with Screen(unit, above=False) as screen:
        task = screen.add_task(what, total=None)
        yield lambda done, total: screen.update(task, completed=done, total=total)


def print_table(
    title: str,
    rows: Mapping[str, str | Sequence[str]],
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Prints rows of values by their names, under `columns` if there are any, and notes below."""
    screen = Console(markup=False, emoji=False)  # names may have [brackets] and :colons:
    if not screen.is_terminal:  # which would cut lines
        screen.width = 160
    table = Table(title=title, show_header=bool(columns))
    table.add_column("", no_wrap=max(map(len, rows), default=0) <= screen.width // 3)
    for column in columns or [""]:
        # folded: a signature that is cut reproduces nothing
        table.add_column(column, overflow="fold", justify="right" if columns else "left")
    for name, values in rows.items():
        table.add_row(name, *([values] if isinstance(values, str) else values))
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, soft_wrap=True)
