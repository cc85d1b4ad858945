"""Processes that work for this one: they end when it does."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def cores() -> int:
    """How many cores this process may use, as far as the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
