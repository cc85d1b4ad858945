"""What happens in a training run around its steps, and when.

A step is code: `training_step` in `step.py`. Before and after it, Lightning calls the callbacks of
`watch`, then the user's, then `TrainingLoop`, then the task (`tasks/base.py`); the methods below
are the order in which the parts of a run observe a step, and end it. What happens at the start,
around a validation and at the end, in the loop and in the task, is here in one list; a test
compares it with the calls of a real run.

start
    finite.begin                           forget the attempt that has diverged
    time_left.begin                        measure the time left from here
    lines.begin                            measure the time since the last line from here
    bar.begin                              show the bar, on a terminal only
    early_stopping.on_train_start          stop if the patience of the resumed run is used up
    loop.save_settings                     write config.yaml, tell the loggers
    checkpoints.on_train_start             handle signals; begin the epoch of a resumed run
    task.on_train_start                    use the learning rates of the settings; freeze parts
validation, at `trainer.val_check_interval`, after the last step, and before an early stop
    throughput.pause                       stop the clock
    checkpoints.on_validation_start        STOP: save without validating
    task.on_validation_start               seed by the step
    task.on_validation_epoch_start         forget the last outputs
    bar.begin_validation_batch             show the batch's number
    task.validation_step                   compute the loss, generate outputs
    checkpoints.on_validation_batch_end    STOP: save without validating
    task.on_validation_epoch_end           log the scores over all ranks
    samples.end_validation                 write outputs to samples.csv
    best.end_validation                    remember the best score
    finite.end_validation                  Diverged if the loss is not finite
    lines.end_validation                   print the scores
    bar.end_validation                     update the bar
    early_stopping.on_validation_end       stop if `checkpoint.patience` is used up
    checkpoints.on_validation_end          SAVE, and choose the weights to keep; STOP
end
    bar.end                                remove the bar
    checkpoints.on_train_end               restore the handlers of signals

STOP: if a rank has received SIGTERM or the like (`step_exchange.py`), all raise `Stopped` there,
with a checkpoint written; a validation that was cut short is repeated on resuming. Diverged:
`fit.py` resumes once from the last checkpoint, after the batches that were bad. On any exception,
the bar is removed and handlers are restored.

What Lightning is made to undo:

- It autocasts a whole `training_step`; `step.py` does so for each forward pass only.
- In 16-mixed it unscales gradients within `optimizer.step`; `OnceUnscaled` has, before they were
  clipped.
- It validates before it obeys `should_stop`; `validate_last_step` sets that to get a validation,
  which a signal does not interrupt, since no resumed run would repeat it.
- Its sampler is off: `BatchLoader` knows its rank, and starts at any step of any epoch.
- Its handlers of signals are replaced: they save nothing.
- Its counters are right for resuming only at the end of a step; `Checkpoints` saves those, also
  later in a validation.
- It saves the state of the callbacks that it knows; the loop's state holds those of its parts.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint

from seqattn.screen import EVERY
from seqattn.training.checkpoint_files import STATE, CheckpointFiles
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.finish import hyperparameters
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.loggers import made_loggers
from seqattn.training.progress import EpochLines, TrainingBar
from seqattn.training.ranks import rank
from seqattn.training.report import (
    BestScore,
    ClipShare,
    Throughput,
    TimeLeft,
    device_figures,
    logs_now,
)
from seqattn.training.resume import save_settings
from seqattn.training.run_logger import run_loggers
from seqattn.training.samples import SampleTable
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup
from seqattn.training.stopping import EarlyStopping, Finite, validate_last_step


class TrainingLoop(Checkpoint):  # Lightning calls checkpoint callbacks last
    """The callback that calls all parts of a run that observe or end it, and its trainer.

    Args:
        run: settings of the run.
        callbacks: the user's callbacks.

    Raises:
        UserError: for arguments that Lightning does not accept.
    """

    state_key = STATE
    setup_of_run: Setup
    throughput: Throughput
    samples: SampleTable
    lines: EpochLines
    bar: TrainingBar | None

    def __init__(self, run: TrainingSettings, callbacks: Sequence[Callback]) -> None:
        self.options = run.trainer
        self.run_dir, self.callbacks, self.loggers = Path(run.run_dir), [*callbacks], list[Any]()
        monitor, mode = run.checkpoint.monitor, run.task.monitors[run.checkpoint.monitor]
        files = CheckpointFiles(self.run_dir / "checkpoints")
        self.finite, self.clip_share, self.time_left = Finite(), ClipShare(), TimeLeft()
        self.best = BestScore(monitor, mode)
        self.early_stopping = EarlyStopping.of(run.checkpoint, mode)
        self.checkpoints = Checkpoints.of(run.checkpoint, files, mode)
        self.trainer = self.build_trainer()

    def build_trainer(self) -> Trainer:
        """Build Lightning's trainer, which can train only once."""
        callbacks, files = [*self.callbacks, self], self.checkpoints.files
        return made_trainer(self.options, self.run_dir, callbacks, self.loggers, [files])

    def prepare(self, setup: Setup) -> None:
        """Create the loggers, and the parts that need data."""
        on_terminal = sys.stderr.isatty()
        self.setup_of_run, self.throughput = setup, setup.throughput
        self.samples = SampleTable(setup.samples, self.run_dir / "samples" / "samples.csv")
        every = math.inf if on_terminal else EVERY
        self.lines = EpochLines(self.throughput, self.time_left, self.best, every)
        self.bar = TrainingBar(self.lines) if on_terminal and rank() == 0 else None
        watchers = setup.run.watch(setup) if setup.run.watch else []
        self.callbacks, self.loggers = [*watchers, *self.callbacks], made_loggers(setup.run.logger)
        self.trainer.callbacks[:0] = watchers  # type: ignore[attr-defined]
        self.trainer.loggers = self.loggers

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        self.finite.begin()
        self.time_left.begin(trainer)
        self.lines.begin()
        if self.bar:
            self.bar.begin(trainer)
        if self.early_stopping:
            self.early_stopping.on_train_start(trainer, task)
        self.save_settings(trainer)
        self.checkpoints.on_train_start(trainer, task)

    def save_settings(self, trainer: Trainer) -> None:
        """Write and log the settings; not earlier, so that a failed resumption keeps the old."""
        if trainer.is_global_zero:
            save_settings(self.setup_of_run.run)
            for logger in run_loggers(trainer.loggers):
                logger.resume(trainer.global_step)
                logger.log_settings(hyperparameters(self.setup_of_run), trainer.global_step)

    def on_train_epoch_start(self, trainer: Trainer, task: Any) -> None:
        self.throughput.begin_epoch()

    def on_train_batch_start(self, trainer: Trainer, task: Any, *_: Any) -> None:
        self.throughput.begin_step(trainer.optimizers[0].param_groups)
        # SAVE the previous step if due, and not yet saved after a validation; STOP
        self.checkpoints.on_train_batch_start(trainer, task)

    def on_train_batch_end(
        self, trainer: Trainer, task: Any, outputs: Any, batches: Any, index: int
    ) -> None:
        self.throughput.end_step(batches, trainer.world_size)
        self.clip_share.end_step(task.gradient_norm, task.optimization.clip)
        if logs_now(trainer):
            self.log_figures(task, trainer.global_step)
        self.finite.end_step(trainer, task.exchange.skipped)  # Diverged after three in a row
        if trainer.is_global_zero:
            self.lines.end_step(trainer, task)
        if self.bar:
            self.bar.end_step(trainer, task)
        validate_last_step(trainer)
        self.checkpoints.on_train_batch_end(trainer, task)  # keep the counters if due to be saved

    def log_figures(self, task: Any, step: int) -> None:
        """Log what was measured since the last time. Args: step: the one that ends."""
        figures = {
            **self.throughput.figures(),
            **self.time_left.figures(step),
            **self.clip_share.figures(),
            **device_figures(task.device),
        }
        task.log_dict({f"train/{name}": x for name, x in figures.items()}, batch_size=1)

    def on_validation_start(self, trainer: Trainer, task: Any) -> None:
        self.throughput.pause()
        self.checkpoints.on_validation_start(trainer, task)

    def on_validation_batch_start(
        self, trainer: Trainer, task: Any, batch: Any, index: int, *_: Any
    ) -> None:
        if self.bar:
            self.bar.begin_validation_batch(trainer, index)

    def on_validation_batch_end(self, trainer: Trainer, task: Any, *batch: Any) -> None:
        self.checkpoints.on_validation_batch_end(trainer, task, *batch)

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.sanity_checking:
            return
        if trainer.is_global_zero:
            self.samples.end_validation(trainer)
        self.best.end_validation(trainer.callback_metrics, trainer.global_step)
        self.finite.end_validation(trainer)
        if trainer.is_global_zero:
            self.lines.end_validation(trainer, task)
        if self.bar:
            self.bar.end_validation()
        if self.early_stopping:
            self.early_stopping.on_validation_end(trainer, task)
        self.checkpoints.on_validation_end(trainer, task)

    def on_train_epoch_end(self, trainer: Trainer, task: Any) -> None:
        self.checkpoints.on_train_epoch_end(trainer, task)

    def on_train_end(self, trainer: Trainer, task: Any) -> None:
        if self.bar:
            self.bar.end()
        self.checkpoints.on_train_end(trainer, task)

    def on_exception(self, trainer: Trainer, task: Any, exception: BaseException) -> None:
        if self.bar:
            self.bar.end()
        self.checkpoints.on_exception(trainer, task, exception)

    @property
    def _parts(self) -> dict[str, Any]:
        """The parts with a state, by their names in checkpoints."""
        parts = {"Throughput": self.throughput, "Monitored": self.best}
        parts |= {"ClipShare": self.clip_share, "Checkpoints": self.checkpoints}
        if self.early_stopping:
            parts[self.early_stopping.state_key] = self.early_stopping
        return parts

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        for name, part in self._parts.items():
            if name in states:
                part.load_state_dict(states[name])

    def on_save_checkpoint(self, trainer: Trainer, task: Any, checkpoint: dict[str, Any]) -> None:
        self.checkpoints.on_save_checkpoint(trainer, task, checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, task: Any, checkpoint: dict[str, Any]) -> None:
        self.checkpoints.on_load_checkpoint(trainer, task, checkpoint)
