"""End of a training run: divergence, early stopping, the last validation."""

import math
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch import callbacks

from seqattn.errors import UserError
from seqattn.screen import say
from seqattn.training.checkpoint_options import CheckpointOptions


class Diverged(UserError):
    """Training no longer gives finite numbers. Args: step: the last step tried."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"training has diverged: non-finite values at step {step}; lower optimizer.lr, "
            "raise schedule.warmup_steps, or set trainer.gradient_clip_val"
        )


class Finite:
    """Report updates skipped for non-finite gradients, and, once, a loss that rises.

    Raises:
        Diverged: after three in a row, or if a validation loss is not finite.
    """

    _MAX_SKIPPED = 3
    _RISEN = 1.5  # times the loss of the first step

    _in_a_row = 0
    _first: Any = None
    """Training loss of the first step, until a rise is reported."""

    def begin(self) -> None:
        """Forget the attempt that has diverged."""
        self._in_a_row, self._first = 0, None

    def end_step(self, trainer: Trainer, skipped: bool) -> None:
        """Check a step. Args: skipped: True if its update was."""
        if self._first is None:
            self._first = trainer.callback_metrics.get("train/loss", math.inf)
        self._in_a_row = self._in_a_row + 1 if skipped else 0
        if skipped and trainer.is_global_zero:
            say(f"skipped the update of step {trainer.global_step}: non-finite gradients")
        if self._in_a_row == self._MAX_SKIPPED:
            raise Diverged(trainer.global_step)

    def end_validation(self, trainer: Trainer) -> None:
        """Check the loss of a validation, and that of training."""
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


def validate_last_step(trainer: Trainer) -> None:
    """Request a validation if the step that ends is the run's last."""
    steps_end = 0 < trainer.max_steps <= trainer.global_step
    if steps_end or (trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs):
        trainer.should_stop = True  # Lightning validates before it stops
        trainer.check_val_every_n_epoch = None  # whatever the epoch
