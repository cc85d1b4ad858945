"""Standard streams, and worker processes that end with their parent."""

import io
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from seqattn.errors import UserError


def write_utf8() -> None:
    """Set standard output and error to UTF-8 in any locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def end_quietly() -> int:
    """Discard further output after the reader has closed the pipe; return 0."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)
"""Signal of a closed terminal."""


class SignalInterrupt(KeyboardInterrupt):
    """Raised for SIGTERM or SIGHUP. Args: number: of the signal."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `SignalInterrupt` for SIGTERM and SIGHUP within the block, to remove temporary files.

    A signal that is ignored, as under nohup, or handled by a caller is left alone.
    """

    def end(number: int, frame: FrameType | None) -> None:
        leave_closed_terminal()
        raise SignalInterrupt(number)

    numbers = {signal.SIGTERM, HANGUP}
    if threading.current_thread() is not threading.main_thread():
        numbers = set()
    handled = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def leave_closed_terminal() -> None:
    """Discard output to a terminal that has been closed, which would raise an error."""
    for stream in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def cores() -> int:
    """Return the number of cores this process may use, as reported by the system."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_alive(pid: int) -> bool:
    """Return True if a process with this pid exists, of any user."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def follow_parent() -> None:
    """End this `multiprocessing` worker with its parent, which alone handles terminal signals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(HANGUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker inherits its parent's handler
    end_with()


def worker_pool(
    count: int, start: str, setup: Callable[..., None] | None = None, *values: Any
) -> ProcessPoolExecutor:
    """Return a pool of worker processes that end with this one.

    Args:
        count: number of processes.
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
    """Turn the death of a worker within the block into a UserError.

    Raises:
        UserError: if a worker was killed; the message includes `advice`.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError(f"a worker process died, possibly out of memory; {advice}") from error


_WATCH = "parent watcher"
_orphaned = threading.Event()


def is_orphaned() -> bool:
    """Return True once the process that `end_with` watches has ended."""
    return _orphaned.is_set()


def end_with(parent: int | None = None, seconds: float = 0.0) -> None:
    """End this process once the process that started it has ended.

    Args:
        parent: pid of the process that started this one, passed on by it; None for a
            `multiprocessing` process, which knows its parent.
        seconds: time to save after a SIGTERM; 0 to end at once.
    """

    def watch() -> None:
        if parent is None:
            starter = multiprocessing.parent_process()
            assert starter is not None
            starter.join()  # under a fork server, getppid() is not the starter
        else:
            while os.getppid() == parent:
                time.sleep(0.1)
        _orphaned.set()
        if seconds:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(seconds)
        os._exit(1)

    if not any(thread.name == _WATCH for thread in threading.enumerate()):  # from an earlier job
        threading.Thread(target=watch, name=_WATCH, daemon=True).start()
