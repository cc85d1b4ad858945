"""Processes that work for this one: they end when it does."""

import multiprocessing
import os
import signal
import threading
import time
from functools import cache
from multiprocessing.connection import wait


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
    """Ends this process with the one that started it, whose signals are not its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked one has its parent's
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_left = threading.Event()


def is_left() -> bool:
    """Whether the process is gone with which `stop_with` lets this one stop."""
    return _left.is_set()


@cache
def stop_with(parent: int, seconds: float = 30.0) -> None:
    """Lets this process get SIGTERM once the one that started it is gone, and end soon after.

    Args:
        parent: the process that started this one.
        seconds: how long it has to save what it does.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        _left.set()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
