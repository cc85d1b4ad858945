"""Callbacks that measure and report."""

import math
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch import callbacks

from seqattn.errors import UserError
from seqattn.screen import say
from seqattn.training.checkpoint_options import CheckpointOptions
from seqattn.training.monitors import logs_now


class Throughput(Callback):
    """Measure tokens per second, share of padding, and share of time spent waiting for data.

    Waiting is all time between the end of a step and the start of the next, except validation.
    Padding and tokens seen cover the whole run, resumptions included; speed and times cover only
    this process.

    Args:
        unit: name of the counted tokens.
        count: returns their number in a batch.
    """

    def __init__(
        self, unit: str = "target tokens", count: Callable[[Any], int] = attrgetter("target_tokens")
    ) -> None:
        self.unit, self.count = unit, count
        self.tokens = self._batches = self._tokens_before = 0
        self.busy_seconds = self.waiting_seconds = self._padding = self._began = 0.0
        self._ended = math.inf
        self._reported = (0, 0.0)
        self._rates: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds of training, excluding validation."""
        return self.busy_seconds + self.waiting_seconds

    def summary(self) -> dict[str, float]:
        """Return tokens per second, and padding and waiting shares (0 to 1), of all steps."""
        return {
            "tokens_per_second": self.tokens / max(self.seconds, 1e-9),
            "padding_share": self._padding / max(self._batches, 1),
            "waiting_share": self.waiting_seconds / max(self.seconds, 1e-9),
        }

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ended = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ended = math.inf  # later figures and checkpoints do not count as waiting

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # the end of a step sets the start of the next
        groups = trainer.optimizers[0].param_groups
        parts = {
            f"lr/{one['part'].replace('*', '_')}": one["lr"] for one in groups if one.get("part")
        }
        self._rates = {"lr": groups[0]["lr"] / groups[0].get("factor", 1.0), **parts}
        self._began = time.perf_counter()
        self.waiting_seconds += max(0.0, self._began - self._ended)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._ended = time.perf_counter()
        self.busy_seconds += self._ended - self._began
        self.tokens += sum(map(self.count, batch)) * trainer.world_size
        self._batches += len(batch)
        self._padding += sum(one.padding_share for one in batch)
        if logs_now(trainer):
            tokens, seconds = self._reported
            rate = (self.tokens - tokens) / max(self.seconds - seconds, 1e-9)
            self._reported = (self.tokens, self.seconds)
            rates = {**self.summary(), "tokens_per_second": rate}
            rates["tokens"] = self._tokens_before + self.tokens
            logged = {f"train/{name}": value for name, value in {**rates, **self._rates}.items()}
            pl_module.log_dict(logged, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        seen = self._tokens_before + self.tokens
        return {"steps": self._batches, "padding": self._padding, "tokens": seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._batches, self._padding = state_dict["steps"], state_dict["padding"]
        self._tokens_before = state_dict["tokens"] - self.tokens


class Monitored(Callback):
    """Best value of a logged number so far, returned to a sweeper.

    Args:
        mode: which way is better, min or max.
    """

    def __init__(self, name: str, mode: str) -> None:
        self.name, self.sign = name, 1 if mode == "min" else -1
        self.best: float | None = None
        self.step = self.count = 0
        """Step of the best value, and number of values."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" or self.name not in trainer.callback_metrics:
            return
        value = float(trainer.callback_metrics[self.name])
        self.count += 1
        if math.isnan(value):
            return
        if self.best is None or self.sign * value < self.sign * self.best:
            self.best, self.step = value, trainer.global_step

    def state_dict(self) -> dict[str, Any]:
        best = {"best": self.best, "step": self.step, "count": self.count}
        return {**best, "name": self.name}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("name", self.name) != self.name:
            return  # saved for another metric
        self.best, self.step, self.count = (state_dict[name] for name in ("best", "step", "count"))


class LastValidation(Callback):
    """Run a validation after the last step."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        steps_end = 0 < trainer.max_steps <= trainer.global_step
        if steps_end or (trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs):
            trainer.should_stop = True  # Lightning validates before it stops
            trainer.check_val_every_n_epoch = None  # whatever the epoch


class EarlyStopping(callbacks.EarlyStopping):
    """Lightning's early stopping; a run that it stopped does not train further when resumed, unless
    its patience has been raised."""

    @classmethod
    def of(cls, options: CheckpointOptions, mode: str) -> "EarlyStopping | None":
        """Return the callback of settings, if any. Args: mode: direction of the metric."""
        if options.patience is None:
            return None
        # at the end of a validation, before its checkpoint
        return cls(
            options.monitor, mode=mode, patience=options.patience, check_on_train_epoch_end=False
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.wait_count >= self.patience:
            trainer.should_stop = True
            if trainer.is_global_zero:
                say(
                    f"early stopping: {self.monitor} has not improved within "
                    f"checkpoint.patience={self.patience}; raise it to continue"
                )


class Diverged(UserError):
    """Training no longer gives finite numbers. Args: step: the last step tried."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"training has diverged: non-finite values at step {step}; lower optimizer.lr, "
            "raise schedule.warmup_steps, or set trainer.gradient_clip_val"
        )


class Finite(Callback):
    """Report updates skipped for non-finite gradients, and, once, a loss that rises.

    Raises:
        Diverged: after three in a row, or if a validation loss is not finite.
    """

    _MOST = 3
    _RISEN = 1.5  # times the loss of the first step

    _in_a_row = 0
    _first: Any = None
    """Training loss of the first step, until a rise is reported."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._in_a_row, self._first = 0, None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        if self._first is None:
            self._first = trainer.callback_metrics.get("train/loss", math.inf)
        self._in_a_row = self._in_a_row + 1 if pl_module.agreement.skipped else 0
        if self._in_a_row and trainer.is_global_zero:
            say(f"skipped the update of step {trainer.global_step}: non-finite gradients")
        if self._in_a_row == self._MOST:
            raise Diverged(trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not math.isfinite(float(trainer.callback_metrics.get("val/loss", 0.0))):
            raise Diverged(trainer.global_step)
        loss = float(trainer.callback_metrics.get("train/loss", 0.0))
        if self._first is None or loss <= self._RISEN * float(self._first):
            return
        if trainer.is_global_zero:
            say(
                f"the training loss has risen from {float(self._first):.3f} to {loss:.3f}; lower "
                "optimizer.lr, or raise schedule.warmup_steps"
            )
        self._first = math.inf
