"""Terminal output of commands: tables, and progress as a bar or as occasional lines."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

EVERY = 30.0
"""Seconds between progress lines when there is no terminal."""
_LARGEST = 10**6
"""Bytes of a log, besides the one before it."""
_LOG = logging.getLogger("seqattn.log")
_LOG.propagate = False
_LOG.setLevel(logging.INFO)


def log_to(file: Path | None) -> None:
    """Append lines to a file from now on; to none if None."""
    for handler in list(_LOG.handlers):
        _LOG.removeHandler(handler)
        handler.close()
    if file is not None:
        handler = RotatingFileHandler(file, maxBytes=_LARGEST, backupCount=1, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        _LOG.addHandler(handler)


def note(*lines: str) -> None:
    """Write lines to the log, if one is open."""
    for line in lines:
        _LOG.info("%s", line)


def say(*lines: str) -> None:
    """Print lines on standard error, and write them to the log, if one is open."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    note(*lines)


def duration(seconds: float) -> str:
    """Format seconds for display, such as `8 min 30 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Screen(Progress):
    """A progress bar on standard error with the time left and metrics below; removed at the end.

    Args:
        unit: what is counted, such as "sentences".
        above: print other output above the bar; False leaves it alone.
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
def progress(
    what: str, unit: str, first: int = 0, above: bool = False
) -> Iterator[Callable[..., object]]:
    """Show the progress of a task, the time left and tokens per second.

    Args:
        what: the task, such as "generating".
        unit: what it is counted in.
        first: how many were done before.
        above: print what a terminal shows of standard output above the bar.

    Yields:
        A callback `(done, total, tokens)`; None for an unknown total, new tokens if known.
    """
    began = reported = time.monotonic()
    made = 0
    screen: Screen | None = None

    def advance(done: int, total: int | None, tokens: int = 0) -> None:
        nonlocal reported, made
        now, made = time.monotonic(), made + tokens
        speed = f"{made / max(now - began, 1e-9):,.0f} tokens/s" if made else ""
        if screen is not None:
            screen.figures = speed
            screen.update(screen.task_ids[0], completed=done, total=total)
        elif done > first and sys.stderr is not None and now - reported >= EVERY:
            reported, parts = now, [what, f"{done:,} {unit}", speed]
            if total is not None:
                left = (now - began) / (done - first) * (total - done)
                parts[1:] = f"{done:,} of {total:,} {unit}", speed, f"{duration(left)} left"
            say(" · ".join(filter(None, parts)))

    if sys.stderr is None or not sys.stderr.isatty():
        yield advance
        return
    screen = Screen(unit, above and sys.stdout is not None and sys.stdout.isatty())
    with screen:
        screen.add_task(what, total=None, completed=first)
        yield advance


def print_table(
    title: str,
    rows: Mapping[str, str | Sequence[str]],
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print rows of named values, under `columns` if given, with notes below."""
    screen = Console(markup=False, emoji=False)  # names may have [brackets] and :colons:
    if not screen.is_terminal:  # rich would cut lines at 80 columns
        screen.width = 160
    table = Table(title=title, show_header=bool(columns))
    table.add_column("", no_wrap=max(map(len, rows), default=0) <= screen.width // 3)
    for column in columns or [""]:
        # fold rather than truncate: a truncated signature is useless
        table.add_column(column, overflow="fold", justify="right" if columns else "left")
    for name, values in rows.items():
        table.add_row(name, *([values] if isinstance(values, str) else values))
    screen.print(table)
    for note in notes:
        screen.print(note, highlight=False, soft_wrap=True)
