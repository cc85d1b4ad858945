"""Interface of loggers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor


class RunLogger:
    """Interface of loggers, in addition to Lightning's `log_metrics` and `log_hyperparams`.

    A custom logger is a subclass of this and of a Lightning logger, and overrides what it supports.
    All methods are called only on the first rank.
    """

    log_hyperparams: Callable[..., None]
    log_metrics: Callable[..., None]
    finalize: Callable[..., None]

    def open(self, run_dir: Path, tags: Sequence[str], group: str | None) -> None:
        """Open the run before training; tags and group help to find it."""

    def resume(self, step: int) -> None:
        """Drop logs from this optimizer step on, 0 for a new run."""

    def log_settings(self, settings: Mapping[str, Any], step: int) -> None:
        """Log the settings of the run."""
        self.log_hyperparams(settings)

    def show_table(self, name: str, rows: Sequence[Sequence[str]], step: int) -> None:
        """Show a table of texts, its header first."""

    def show_figure(self, name: str, figure: Any, step: int) -> None:
        """Show a matplotlib figure."""

    def show_histogram(self, name: str, values: Tensor, step: int) -> None:
        """Show a histogram of numbers (N,) on the CPU."""

    def log_scores(
        self, scores: Mapping[str, float], settings: Mapping[str, Any], step: int
    ) -> None:
        """Log the scores of the bundle."""
        self.log_metrics(scores, step)

    def keep(self, path: Path, kind: str, aliases: Sequence[str]) -> None:
        """Store a file or directory of the run, such as its model."""

    def close(self) -> None:
        """Close the completed run."""
        self.finalize("success")


class _Foreign(RunLogger):
    """A plain Lightning logger, which only logs settings and numbers."""

    def __init__(self, logger: Any) -> None:
        self.log_hyperparams, self.log_metrics = logger.log_hyperparams, logger.log_metrics
        self.finalize = logger.finalize


def run_loggers(loggers: Iterable[Any]) -> list[RunLogger]:
    """Wrap Lightning loggers that do not have this interface."""
    return [one if isinstance(one, RunLogger) else _Foreign(one) for one in loggers]


def show_histograms(kinds: Iterable[type]) -> bool:
    """Return True if loggers of one of these types show histograms."""
    shown = {getattr(kind, "show_histogram", RunLogger.show_histogram) for kind in kinds}
    return bool(shown - {RunLogger.show_histogram})
