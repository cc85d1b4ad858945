"""`datasets` without its progress bars and warnings."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import datasets


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Silences `datasets` and the hub's client for a while, and then leaves them as they were."""
    bars = datasets.are_progress_bars_disabled()
    loggers = [logging.getLogger("datasets"), logging.getLogger("huggingface_hub")]
    levels = [logger.level for logger in loggers]
    datasets.disable_progress_bars()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()
