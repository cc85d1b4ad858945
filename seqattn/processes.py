"""Processes that work for this one: they end when it does."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


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
