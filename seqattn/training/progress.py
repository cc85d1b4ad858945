"""Progress of training: a bar on a terminal, lines elsewhere."""

import math
import time
from typing import Any

from lightning import LightningModule, Trainer

from seqattn.screen import EVERY, Screen, duration, say
from seqattn.training.report import BestScore, Throughput, TimeLeft

_REFRESHED = 0.5
"""Seconds between updates of the figures, each of which waits for the device."""
_FIRST = ("loss", "perplexity", "accuracy")
_TIMED = 20
"""Steps after which the length of the training is estimated."""
_HIDDEN = ("nll", "rouge1", "rouge2", "rougeLsum", "chrF")


def score_text(name: str, value: float, form: str = ".3f") -> str:
    """Return a score as text; token accuracy in percent, like the scores of outputs beside it."""
    percent = name.removeprefix("val/") == "accuracy"
    value, form = (100 * value, ".1f") if percent else (value, form)
    text = f"{value:{form}}"
    return (text if float(text) or not value else f"{value:.1g}") + "%" * percent


class EpochLines:
    """Print a line on standard error after each validation, and at intervals between.

    After a few steps, a line estimates the time of all.

    Args:
        every: seconds between lines; infinite if a bar is shown.
    """

    def __init__(
        self,
        throughput: Throughput,
        time_left: TimeLeft,
        best: BestScore | None = None,
        every: float = EVERY,
    ) -> None:
        self.throughput, self.time_left, self.best, self.every = throughput, time_left, best, every
        self._printed = time.monotonic()
        self._estimated = False

    def figures(self, trainer: Trainer, task: LightningModule, validated: bool = True) -> str:
        """Return a text with the training loss, the last validation scores, and the speed.

        Args: validated: False to leave these scores out.
        """
        scores, parts = dict(trainer.callback_metrics), []
        if "train/loss" in scores:
            parts.append(f"train loss {score_text('loss', float(scores['train/loss']))}")
        logged = [key.removeprefix("val/") for key in scores if key.startswith("val/")] * validated
        names = [name for name in _FIRST if name in logged]
        if getattr(task, "generates_now", True):  # else other scores are from an earlier epoch
            names += [name for name in logged if name not in _FIRST + _HIDDEN]
        best = self.best
        best_name = best.name.removeprefix("val/") if best and best.best is not None else None
        if best_name in logged and best_name not in names:  # a resumed run has not validated yet
            names.append(best_name)
        for name in names:
            value, mark = float(scores[f"val/{name}"]), ""
            if best and best.name == f"val/{name}" and best.best is not None:
                mark = f" (best {score_text(name, best.best)}, step {best.step})"
                mark = " (best)" if best.step == trainer.global_step else mark
            if name == "loss" and (nll := float(scores.get("val/nll", value))) != value:
                mark = f" (smoothed; nll {score_text('nll', nll)}){mark}"
            parts.append(f"val {name} {score_text(name, value)}{mark}")
        speed = self.throughput.summary()["tokens_per_second"]
        return " · ".join([*parts, f"{speed:,.0f} {self.throughput.unit}/s"])

    def begin(self) -> None:
        """Measure intervals from now on."""
        self._printed = time.monotonic()

    def end_step(self, trainer: Trainer, task: LightningModule) -> None:
        """Print a line if the last is some time ago."""
        self._estimate(trainer)
        if time.monotonic() - self._printed < self.every:
            return
        figures = self.time_left.figures(trainer.global_step)
        self._print(trainer, task, [f"{duration(seconds)} left" for seconds in figures.values()])

    def _estimate(self, trainer: Trainer) -> None:
        """Print the time of all steps once, after `_TIMED` of them."""
        time_left = self.time_left
        if self._estimated or trainer.global_step - time_left.first < _TIMED:
            return
        self._estimated = True
        if math.isfinite(time_left.steps):
            seconds = math.ceil(time_left.per_step(trainer.global_step) * time_left.steps / 10) * 10
            what = f"{time_left.steps:,} steps"
            if time_left.first:
                what = f"the remaining {what}"
            elif (trainer.max_epochs or -1) > 0:
                what = f"{trainer.max_epochs} epochs ({what})"
            say(f"about {duration(seconds)} for {what}, plus validations")

    def end_validation(self, trainer: Trainer, task: LightningModule) -> None:
        """Print a line with the scores."""
        self._print(trainer, task)

    def _print(self, trainer: Trainer, task: LightningModule, ends: Any = None) -> None:
        """Print a line with the given ends; None for one with the scores of a validation."""
        where = [f"epoch {trainer.current_epoch + 1}", f"step {trainer.global_step}"]
        say(" · ".join([*where, self.figures(trainer, task, ends is None), *(ends or ())]))
        self._printed = time.monotonic()


class TrainingBar:
    """Progress bar of the training, with the figures of `lines` below it."""

    def __init__(self, lines: EpochLines) -> None:
        self.lines = lines
        self.screen: Screen | None = None
        self._updated = -math.inf

    def begin(self, trainer: Trainer) -> None:
        """Show the bar."""
        self.screen = Screen("steps", above=True)
        total = trainer.estimated_stepping_batches
        self.screen.add_task("", total=total if math.isfinite(total) else None)
        self._show(trainer, f"epoch {trainer.current_epoch + 1}")
        self.screen.start()

    def end_step(self, trainer: Trainer, task: LightningModule) -> None:
        """Update the bar if the last update is some time ago."""
        now = time.monotonic()
        if self.screen is not None and now - self._updated >= _REFRESHED:
            self._updated = now
            self.screen.figures = self.lines.figures(trainer, task)
            self._show(trainer, f"epoch {trainer.current_epoch + 1}")

    def begin_validation_batch(self, trainer: Trainer, number: int) -> None:
        """Show the number of a batch, from 0."""
        self._show(trainer, f"validating {number + 1}/{sum(trainer.num_val_batches)}")

    def end_validation(self) -> None:
        """Show new figures after the next step."""
        self._updated = -math.inf

    def end(self) -> None:
        """Remove the bar."""
        if self.screen is not None:
            self.screen.stop()

    def _show(self, trainer: Trainer, doing: str) -> None:
        if self.screen is not None:
            [task] = self.screen.task_ids
            self.screen.update(task, completed=trainer.global_step, description=doing)
