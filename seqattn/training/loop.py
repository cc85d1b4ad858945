"""What happens in a training run, and when.

The step itself is code: `training_step` in `step.py`. Around it, Lightning calls the callbacks of
`watch`, then the user's, then `TrainingLoop`, which calls its parts by name, and then the task
(`tasks/base.py`). Read from top to bottom, this is a run of one step; a test compares it with the
calls of a real run.

start
    finite.on_train_start                  forget the attempt that has diverged
    lines.on_train_start                   measure the time left from here
    bar.on_train_start                     show the bar, on a terminal only
    early_stopping.on_train_start          stop if the patience of the resumed run is used up
    loop.save_settings                     write config.yaml, tell the loggers
    checkpoints.on_train_start             handle signals; begin the epoch of a resumed run
    task.on_train_start                    use the learning rates of the settings; freeze parts
epoch
    throughput.on_train_epoch_start        start the clock that waits for data
step
    throughput.on_train_batch_start        stop it
    checkpoints.on_train_batch_start       SAVE the previous step if due and not yet saved; STOP;
                                           request one after `checkpoint.every_minutes`
    task.on_train_batch_start              thaw parts
    task.training_step                     `step.py`: REDUCE units, signals and that request over
                                           all ranks; gradients; CLIP; drop what is not finite
    optimizer.step                         its last lines: change the weights, then the rates
    throughput.on_train_batch_end          log speed and rates
    finite.on_train_batch_end              report a dropped gradient; Diverged after three
    lines.on_train_batch_end               print a line now and then
    clip_share.on_train_batch_end          log the share of clipped gradients
    device_figures.on_train_batch_end      log memory, and use of a GPU
    bar.on_train_batch_end                 update the bar
    last_validation.on_train_batch_end     request a validation after the run's last step
    checkpoints.on_train_batch_end         keep the counters of a step that is due to be saved
validation, at `trainer.val_check_interval`, after the last step, and before an early stop
    throughput.on_validation_start         stop the clock
    checkpoints.on_validation_start        STOP: save without validating
    task.on_validation_start               seed by the step
    task.on_validation_epoch_start         forget the last outputs
    bar.on_validation_batch_start          show the batch's number
    task.validation_step                   compute the loss, generate outputs
    checkpoints.on_validation_batch_end    STOP: save without validating
    task.on_validation_epoch_end           log the scores over all ranks
    samples.on_validation_end              write outputs to samples.csv
    monitored.on_validation_end            remember the best score
    finite.on_validation_end               Diverged if the loss is not finite
    lines.on_validation_end                print the scores
    bar.on_validation_end                  update the bar
    early_stopping.on_validation_end       stop if `checkpoint.patience` is used up
    checkpoints.on_validation_end          SAVE, and choose the weights to keep; STOP
end of the epoch
    checkpoints.on_train_epoch_end         SAVE the previous step if due and not yet saved; STOP
end of the run
    bar.on_train_end                       remove the bar
    checkpoints.on_train_end               restore the handlers of signals

STOP: if a rank has received SIGTERM or the like (`agreement.py`), all raise `Stopped` there, with
a checkpoint written; a validation that was cut short is repeated on resuming. Diverged: `fit.py`
resumes once from the last checkpoint, after the batches that were bad. On any exception, the bar
is removed and handlers are restored.

What Lightning is made to undo:

- It autocasts a whole `training_step`; `step.py` does so for each forward pass only.
- In 16-mixed it unscales gradients within `optimizer.step`; `OnceUnscaled` has, before they were
  clipped.
- It validates before it obeys `should_stop`; `LastValidation` sets that to get a validation, which
  a signal does not interrupt, since no resumed run would repeat it.
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
from seqattn.training.callbacks import (
    EarlyStopping,
    Finite,
    LastValidation,
    Monitored,
    Throughput,
)
from seqattn.training.checkpoint_files import CheckpointFiles
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.finish import hyperparameters
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.loggers import made_loggers
from seqattn.training.monitors import ClipShare, DeviceFigures
from seqattn.training.progress import EpochLines, TrainingBar
from seqattn.training.resume import save_settings
from seqattn.training.run_logger import run_loggers
from seqattn.training.samples import SampleTable
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup


class TrainingLoop(Checkpoint):  # Lightning calls checkpoint callbacks last
    """The callback that calls all others of a run, except the user's, and its trainer.

    Args:
        run: settings of the run.
        callbacks: the user's callbacks.

    Raises:
        UserError: for arguments that Lightning does not accept.
    """

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
        self.finite, self.clip_share, self.device_figures = Finite(), ClipShare(), DeviceFigures()
        self.last_validation, self.monitored = LastValidation(), Monitored(monitor, mode)
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
        self.lines = EpochLines(self.throughput, self.monitored, every)
        self.bar = TrainingBar(self.lines) if on_terminal else None
        watchers = setup.run.watch(setup) if setup.run.watch else []
        self.callbacks, self.loggers = [*watchers, *self.callbacks], made_loggers(setup.run.logger)
        self.trainer.callbacks[:0] = watchers  # type: ignore[attr-defined]
        self.trainer.loggers = self.loggers

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        self.finite.on_train_start(trainer, task)
        self.lines.on_train_start(trainer, task)
        if self.bar:
            self.bar.on_train_start(trainer, task)
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
        self.throughput.on_train_epoch_start(trainer, task)

    def on_train_batch_start(self, trainer: Trainer, task: Any, *batch: Any) -> None:
        self.throughput.on_train_batch_start(trainer, task, *batch)
        self.checkpoints.on_train_batch_start(trainer, task)

    def on_train_batch_end(self, trainer: Trainer, task: Any, *batch: Any) -> None:
        self.throughput.on_train_batch_end(trainer, task, *batch)
        self.finite.on_train_batch_end(trainer, task)
        self.lines.on_train_batch_end(trainer, task)
        self.clip_share.on_train_batch_end(trainer, task)
        self.device_figures.on_train_batch_end(trainer, task)
        if self.bar:
            self.bar.on_train_batch_end(trainer, task)
        self.last_validation.on_train_batch_end(trainer, task)
        self.checkpoints.on_train_batch_end(trainer, task)

    def on_validation_start(self, trainer: Trainer, task: Any) -> None:
        self.throughput.on_validation_start(trainer, task)
        self.checkpoints.on_validation_start(trainer, task)

    def on_validation_batch_start(self, trainer: Trainer, task: Any, *batch: Any) -> None:
        if self.bar:
            self.bar.on_validation_batch_start(trainer, task, *batch)

    def on_validation_batch_end(self, trainer: Trainer, task: Any, *batch: Any) -> None:
        self.checkpoints.on_validation_batch_end(trainer, task, *batch)

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        self.samples.on_validation_end(trainer, task)
        self.monitored.on_validation_end(trainer, task)
        self.finite.on_validation_end(trainer, task)
        self.lines.on_validation_end(trainer, task)
        if self.bar:
            self.bar.on_validation_end(trainer, task)
        if self.early_stopping:
            self.early_stopping.on_validation_end(trainer, task)
        self.checkpoints.on_validation_end(trainer, task)

    def on_train_epoch_end(self, trainer: Trainer, task: Any) -> None:
        self.checkpoints.on_train_epoch_end(trainer, task)

    def on_train_end(self, trainer: Trainer, task: Any) -> None:
        if self.bar:
            self.bar.on_train_end(trainer, task)
        self.checkpoints.on_train_end(trainer, task)

    def on_exception(self, trainer: Trainer, task: Any, exception: BaseException) -> None:
        if self.bar:
            self.bar.on_exception(trainer, task, exception)
        self.checkpoints.on_exception(trainer, task, exception)

    @property
    def _parts(self) -> list[Callback]:
        return [part for part in vars(self).values() if isinstance(part, Callback)]

    def state_dict(self) -> dict[str, Any]:
        return {part.state_key: state for part in self._parts if (state := part.state_dict())}

    def on_save_checkpoint(self, trainer: Trainer, task: Any, checkpoint: dict[str, Any]) -> None:
        self.checkpoints.on_save_checkpoint(trainer, task, checkpoint)

    def on_load_checkpoint(self, trainer: Trainer, task: Any, checkpoint: dict[str, Any]) -> None:
        self.checkpoints.on_load_checkpoint(trainer, task, checkpoint)
        # runs of earlier versions have the states of the parts beside those of other callbacks
        states = checkpoint["callbacks"].get(self.state_key, checkpoint["callbacks"])
        for part in self._parts:
            if part.state_key in states:
                part.load_state_dict(states[part.state_key])
