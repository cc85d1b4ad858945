"""Progress of training: a bar on a terminal, lines elsewhere."""

import math
import time
from typing import Any

from lightning import Callback, LightningModule, Trainer

from seqattn.screen import EVERY, Screen, duration, say
from seqattn.training.callbacks import Monitored, Throughput
from seqattn.training.monitors import logs_now

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


class EpochLines(Callback):
    """Print a line on standard error after each validation, and at intervals between.

    After a few steps, a line estimates the time of all.

    Loggers get the remaining seconds.

    Args:
        every: seconds between lines; infinite if a bar is shown.
    """

    def __init__(
        self, throughput: Throughput, monitored: Monitored | None = None, every: float = EVERY
    ) -> None:
        self.throughput, self.monitored, self.every = throughput, monitored, every
        self.total = math.inf
        self._began = self._told = time.monotonic()
        self._first = 0
        self._estimated = False

    def figures(self, trainer: Trainer, pl_module: LightningModule, validated: bool = True) -> str:
        """Return a text with the training loss, the last validation scores, and the speed.

        Args: validated: False to leave these scores out.
        """
        scores, parts = dict(trainer.callback_metrics), []
        if "train/loss" in scores:
            parts.append(f"train loss {score_text('loss', float(scores['train/loss']))}")
        logged = [key.removeprefix("val/") for key in scores if key.startswith("val/")] * validated
        names = [name for name in _FIRST if name in logged]
        if getattr(pl_module, "generates_now", True):  # else other scores are from an earlier epoch
            names += [name for name in logged if name not in _FIRST + _HIDDEN]
        best = self.monitored
        own = best.name.removeprefix("val/") if best and best.best is not None else None
        if own in logged and own not in names:  # a resumed run has not validated yet
            names.append(own)
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

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.total, self._first = trainer.estimated_stepping_batches, trainer.global_step
        self._began = self._told = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        now, step = time.monotonic(), trainer.global_step
        if step == self._first:
            return
        self._estimate(trainer, now)
        left = (now - self._began) / (step - self._first) * (self.total - step)
        if logs_now(trainer) and math.isfinite(left):
            pl_module.log("train/seconds_left", left, batch_size=1)
        if now - self._told < self.every or not trainer.is_global_zero:
            return
        ends = [f"{duration(left)} left"] if math.isfinite(left) else []
        self._tell(trainer, pl_module, ends)

    def _estimate(self, trainer: Trainer, now: float) -> None:
        """Print the time of all steps once, after `_TIMED` of them."""
        done, steps = trainer.global_step - self._first, self.total - self._first
        if self._estimated or done < _TIMED or not trainer.is_global_zero:
            return
        self._estimated = True
        if math.isfinite(steps):
            seconds = math.ceil((now - self._began) / done * steps / 10) * 10
            what = f"{steps:,} steps"
            if self._first:
                what = f"the remaining {what}"
            elif (trainer.max_epochs or -1) > 0:
                what = f"{trainer.max_epochs} epochs ({what})"
            say(f"about {duration(seconds)} for {what}, plus validations")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        self._tell(trainer, pl_module)

    def _tell(self, trainer: Trainer, module: LightningModule, ends: Any = None) -> None:
        """Print a line with the given ends; None for one with the scores of a validation."""
        where = [f"epoch {trainer.current_epoch + 1}", f"step {trainer.global_step}"]
        say(" · ".join([*where, self.figures(trainer, module, ends is None), *(ends or ())]))
        self._told = time.monotonic()


class TrainingBar(Callback):
    """Progress bar of the training, with the figures of `lines` below it."""

    def __init__(self, lines: EpochLines) -> None:
        self.lines = lines
        self.screen: Screen | None = None
        self._looked = -math.inf

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self.screen = Screen("steps", above=True)
            total = trainer.estimated_stepping_batches
            self.screen.add_task("", total=total if math.isfinite(total) else None)
            self._show(trainer, f"epoch {trainer.current_epoch + 1}")
            self.screen.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        now = time.monotonic()
        if self.screen is not None and now - self._looked >= _REFRESHED:
            self._looked = now
            self.screen.figures = self.lines.figures(trainer, pl_module)
            self._show(trainer, f"epoch {trainer.current_epoch + 1}")

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        self._show(trainer, f"validating {batch_idx + 1}/{sum(trainer.num_val_batches)}")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._looked = -math.inf

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _show(self, trainer: Trainer, doing: str) -> None:
        if self.screen is not None:
            [task] = self.screen.task_ids
            self.screen.update(task, completed=trainer.global_step, description=doing)

    def _stop(self) -> None:
        if self.screen is not None:
            self.screen.stop()
