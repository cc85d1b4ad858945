"""What a training run asks of a logger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor


class RunLogger:
    """What a run asks of a logger, beside Lightning's `log_metrics` and `log_hyperparams`.

    A logger of your own is a subclass of this and of a Lightning logger. It overrides what it can
    do; what it cannot show is left out. All are called on the first rank alone.
    """

    log_hyperparams: Callable[..., None]
    log_metrics: Callable[..., None]
    finalize: Callable[..., None]

    def open(self, run_dir: Path, tags: Sequence[str], group: str | None) -> None:
        """Open the run, before it trains; tags and group are what it is found by."""

    def resume(self, step: int) -> None:
        """Drop what was logged from this optimizer step on, 0 for a new run."""

    def log_settings(self, settings: Mapping[str, Any], step: int) -> None:
        """Log what the run is made with."""
        self.log_hyperparams(settings)

    def show_table(self, name: str, rows: Sequence[Sequence[str]], step: int) -> None:
        """Show a table of texts, its header first."""

    def show_figure(self, name: str, figure: Figure, step: int) -> None:
        """Show a picture."""

    def show_histogram(self, name: str, values: Tensor, step: int) -> None:
        """Show how numbers (N,) are distributed; they lie on the CPU."""

    def log_scores(
        self, scores: Mapping[str, float], settings: Mapping[str, Any], step: int
    ) -> None:
        """Log the scores of the bundle."""
        self.log_metrics(scores, step)

    def keep(self, path: Path, kind: str, aliases: Sequence[str]) -> None:
        """Keep a file or directory of the run, such as its model."""

    def close(self) -> None:
        """Close the run, which is complete."""
        self.finalize("success")


class _Foreign(RunLogger):
    """A logger of Lightning's own, which takes settings and numbers alone."""

    def __init__(self, logger: Any) -> None:
        self.log_hyperparams, self.log_metrics = logger.log_hyperparams, logger.log_metrics
        self.finalize = logger.finalize


def run_loggers(loggers: Iterable[Any]) -> list[RunLogger]:
    """Return Lightning loggers as what a run talks to."""
    return [one if isinstance(one, RunLogger) else _Foreign(one) for one in loggers]


def show_histograms(kinds: Iterable[type]) -> bool:
    """Return True if loggers of one of these types show histograms."""
    shown = {getattr(kind, "show_histogram", RunLogger.show_histogram) for kind in kinds}
    return bool(shown - {RunLogger.show_histogram})
