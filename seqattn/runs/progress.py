"""How far a long work is, on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from seqattn.generation.base import Progress


@contextmanager
def progress_bar(doing: str) -> Iterator[Progress | None]:
    """A bar with the time left on standard error; None where that is no terminal.

    Args:
        doing: stands before the bar, such as "generating".
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    screen: dict[str, Any] = {"console": Console(stderr=True), "transient": True}
    screen |= {"redirect_stdout": False, "redirect_stderr": False}  # output goes where it belongs
    with Bar(*columns, TimeRemainingColumn(), **screen) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
