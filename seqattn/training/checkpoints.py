"""Saving and resuming a run's state, and selecting weights."""

import math
import time
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, WeightAveraging

from seqattn.errors import Stopped
from seqattn.training.checkpoint_files import KEPT, CheckpointFiles
from seqattn.training.checkpoint_options import CheckpointOptions
from seqattn.training.stopping import Diverged

_POSITION = ("state_dict", "epoch_progress", "epoch_loop.batch_progress")
"""Parts of the state of Lightning's loops that determine the next batch."""


class Checkpoints(Checkpoint):
    """Save after each validation, at regular intervals, and when a signal requests a stop.

    A checkpoint has Lightning's counters at the end of an optimizer step, from where Lightning
    resumes; it is written after the step's figures are logged. If a stop comes before or during a
    validation, it has the counters at that point, and the validation is repeated.

    Args:
        monitor: metric that selects validated weights: a logged number, or step for the last.
        mode: direction of the metric, min or max.
        count: number of weights to keep.
        every_steps: optimizer steps between checkpoints; None for validations only.
        every_minutes: minutes between checkpoints; None for validations only.

    Attributes:
        kept: (value, step) of the weights to keep, best first.
        passed: counters where training diverged, to resume after them; None if it has not.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        monitor: str = "val/loss",
        mode: str = "min",
        count: int = 1,
        every_steps: int | None = None,
        every_minutes: float | None = None,
    ) -> None:
        self.files, self.monitor, self.mode, self.count = files, monitor, mode, count
        self._by = [monitor, mode]
        self.every_steps, self.every_seconds = every_steps, 60 * (every_minutes or math.inf)
        self.kept: list[tuple[float, int]] = []
        self.passed: dict[str, Any] | None = None
        self._counters: dict[str, Any] | None = None
        """Counters of the step to save; None for none."""
        self._validated = True
        self._interval: tuple[Any, Any] | None = None
        self._resumed: bool | None = None
        """Whether the resumed step was validated, if it was to be; None for a new run."""
        self._saved, self._saved_at = 0, time.monotonic()

    @classmethod
    def of(cls, options: CheckpointOptions, files: CheckpointFiles, mode: str) -> "Checkpoints":
        """Return the callback of settings. Args: mode: direction of their metric, min or max."""
        by = (options.monitor, mode) if options.average == "best" else ("step", "max")
        return cls(files, *by, options.count, options.every_steps, options.every_minutes)

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        # replaces Lightning's handlers, which save nothing
        pl_module.exchange.signals.listen()
        if self._resumed is not None:
            _begin_epoch(trainer)
            if not self._resumed:
                self._interval = _validate_at_once(trainer)
            self._resumed = None

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.exchange.signals.restore()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        pl_module.exchange.signals.restore()
        self._counters = None
        if isinstance(exception, Diverged):
            self.passed = _counters(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.files.check()
        exchange, step = pl_module.exchange, trainer.global_step
        late = exchange.save and step > self._saved + 1
        regular = self.every_steps and step % self.every_steps == 0
        if late or regular or exchange.stop or trainer.should_stop:
            self._counters = _counters(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self._save_step(trainer, pl_module)
        late = time.monotonic() - self._saved_at > self.every_seconds
        pl_module.exchange.wants_save = late and trainer.is_global_zero

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._save_step(trainer, pl_module)

    def _save_step(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the previous step if it is due and no validation has followed."""
        if self._counters is not None:
            self._save(trainer)
            if pl_module.exchange.stop:
                self._end(trainer, pl_module.exchange.stop)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        if self._interval is not None:
            trainer.val_check_batch, trainer.check_val_every_n_epoch = self._interval
            self._interval = None
        # the last validation is completed first, since no run would resume it
        if _trains(trainer) and pl_module.exchange.stop and not trainer.should_stop:
            self._stop_unvalidated(trainer, pl_module.exchange.stop)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: Any, *at: Any) -> None:
        loader: Any = trainer.val_dataloaders
        on_every_rank = _trains(trainer) and at[2] < loader.batches.on_every_rank
        if not on_every_rank or trainer.should_stop:
            return
        stop = pl_module.exchange.stops_now(trainer)
        if stop:
            self._stop_unvalidated(trainer, stop)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if not _trains(trainer):
            return
        step = trainer.global_step
        value = step if self.monitor == "step" else trainer.callback_metrics.get(self.monitor)
        if value is not None:
            worse = float(value) * (1 if self.mode == "min" else -1)
            validated = [*self.kept, (math.inf if math.isnan(worse) else worse, step)]
            self.kept = sorted(validated, key=lambda one: one[0])[: self.count]
        self._counters = _counters(trainer)
        self._save(trainer)
        stop = trainer.should_stop and pl_module.exchange.stops_now(trainer)
        if stop:
            self._end(trainer, stop)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._counters is not None:
            checkpoint["loops"]["fit_loop"] = self._counters
        checkpoint["validated"] = self._validated
        loader: Any = trainer.train_dataloader
        checkpoint["step_batches"] = loader.batches.step_batches
        checkpoint[KEPT] = [step for _, step in self.kept]

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._resumed = checkpoint["validated"]
        if self.passed is not None:
            counters = checkpoint["loops"]["fit_loop"]
            counters.update({name: self.passed[name] for name in _POSITION})
            self._resumed = True
        self._saved = checkpoint["global_step"]
        weights = checkpoint.get("current_model_state")  # saved with a moving average
        if weights and not any(isinstance(one, WeightAveraging) for one in trainer.callbacks):  # type: ignore[attr-defined]
            trainer.strategy.load_model_state_dict({"state_dict": weights})

    def state_dict(self) -> dict[str, Any]:
        return {"kept": [list(one) for one in self.kept], "by": self._by}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the weights to keep; if the metric has changed, any new ones are better."""
        same = state_dict.get("by", self._by) == self._by
        restored = [(value if same else math.inf, step) for value, step in state_dict["kept"]]
        self.kept = restored[: self.count]

    def _save(self, trainer: Trainer) -> None:
        self._saved, self._saved_at = trainer.global_step, time.monotonic()
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            name = f"step-{trainer.global_step:06d}.ckpt"
            trainer.save_checkpoint(self.files.directory / name)
        self._counters = None

    def _stop_unvalidated(self, trainer: Trainer, signal: int) -> None:
        self._counters, self._validated = None, False
        self._save(trainer)
        self._end(trainer, signal)

    def _end(self, trainer: Trainer, signal: int) -> None:
        self.files.wait()
        trainer.strategy.barrier()
        raise Stopped(signal, trainer.global_step)


def _trains(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _counters(trainer: Trainer) -> dict[str, Any]:
    """Return the state of Lightning's loops at the end of the last step.

    From the end of a validation Lightning would resume correctly only by repeating it.
    """
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    after = int(progress.total.completed == progress.total.processed)
    for part in (progress.total, progress.current):
        part.completed -= after
    state = trainer.fit_loop.state_dict()
    for part in (progress.total, progress.current):
        part.completed += after
    return state


def _begin_epoch(trainer: Trainer) -> None:
    """Let Lightning go on after an epoch whose last step was saved."""
    loop: Any = trainer.fit_loop
    progress, epochs = loop.epoch_loop.batch_progress, loop.epoch_progress
    if progress.is_last_batch:  # the number of steps may have changed
        progress.current.increment_by(int(trainer.num_training_batches) - progress.current.ready)
    # Lightning has left the epoch, and does not start the next one
    if loop.restarted_mid_epoch and epochs.current.ready == epochs.current.processed:
        epochs.increment_ready()
        epochs.increment_started()


def _validate_at_once(trainer: Trainer) -> tuple[Any, Any]:
    """Let Lightning repeat a validation that was stopped, from its start.

    Returns:
        The trainer's validation intervals, to be restored once it has begun.
    """
    loop = trainer.fit_loop.epoch_loop.val_loop
    loop.batch_progress.reset()
    loop.batch_progress.increment_ready()
    loop.batch_progress.increment_started()
    loop.update_restart_stage()
    interval = trainer.val_check_batch, trainer.check_val_every_n_epoch
    trainer.val_check_batch, trainer.check_val_every_n_epoch = 1, None
    return interval
