"""This process and its streams, and processes that work for it: they end when it does."""

import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from seqattn.errors import UserError


def write_utf8() -> None:
    """Lets standard output and error be UTF-8 whatever the locale, as the files are."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def cores() -> int:
    """How many cores this process may use, as far as the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_alive(pid: int) -> bool:
    """Return True if this machine has a process of that number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def follow_parent() -> None:
    """End this worker of `multiprocessing` with the process that it works for, which alone gets
    the signals of a terminal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked one has its parent's
    end_with()


def worker_pool(
    count: int, start: str, setup: Callable[..., None] | None = None, *values: Any
) -> ProcessPoolExecutor:
    """Return processes that work for this one and end with it.

    Args:
        count: how many.
        start: "fork" to share this process's memory, or "spawn" to inherit nothing.
        setup: called with `values` in each process before its first job.
    """
    context = multiprocessing.get_context(start)
    return ProcessPoolExecutor(count, context, _set_up_worker, (setup, *values))


def _set_up_worker(setup: Callable[..., None] | None, *values: Any) -> None:
    follow_parent()
    if setup is not None:
        setup(*values)


@contextmanager
def worker_deaths(advice: str) -> Iterator[None]:
    """A block in which the death of a worker is an error that the user can act on.

    Raises:
        UserError: a worker was killed, with the advice.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError(f"a worker died, perhaps for want of memory; {advice}") from error


_WATCH = "watch of the parent"
_orphaned = threading.Event()


def is_orphaned() -> bool:
    """Return True once the process is gone that `end_with` watches."""
    return _orphaned.is_set()


def end_with(parent: int | None = None, seconds: float = 0.0) -> None:
    """End this process once the one that started it is gone, or if it is gone by now.

    Args:
        parent: the pid of the process that started this one, which only that one knows for sure;
            None for a process of `multiprocessing`, which is told.
        seconds: how long this process has to save after a SIGTERM; 0 to end at once.
    """

    def watch() -> None:
        if parent is None:
            starter = multiprocessing.parent_process()
            assert starter is not None
            starter.join()  # of a fork server's processes it is not the parent
        else:
            while os.getppid() == parent:
                time.sleep(0.1)
        _orphaned.set()
        if seconds:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(seconds)
        os._exit(1)

    if not any(thread.name == _WATCH for thread in threading.enumerate()):  # of an earlier job
        threading.Thread(target=watch, name=_WATCH, daemon=True).start()
