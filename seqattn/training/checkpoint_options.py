"""Settings of checkpoints and early stopping."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from seqattn.checking import Count
from seqattn.roles import Role
from seqattn.training.callbacks import EarlyStopping
from seqattn.training.checkpoint_files import CheckpointFiles
from seqattn.training.checkpoints import Checkpoints


@dataclass(frozen=True)
class CheckpointOptions:
    """Settings of checkpoints, weight averaging and early stopping.

    Args:
        monitor: metric of the best weights and of early stopping, such as val/loss or val/bleu.
        average: which validated weights the bundle averages: best or last.
        count: number of weights to average.
        every_steps: optimizer steps between checkpoints; None for validations only.
        every_minutes: minutes between checkpoints, so that little of a long epoch is lost.
        patience: validations without improvement before training stops; None to never stop early.
    """

    monitor: str = "val/loss"
    average: Literal["best", "last"] = "best"
    count: Annotated[int, Ge(1), Le(1000)] = 1
    every_steps: Annotated[Count | None, Role.NOTE] = None
    every_minutes: Annotated[Annotated[float, Gt(0), Le(10**6)] | None, Role.NOTE] = 10.0
    patience: Count | None = None

    def callback(self, files: CheckpointFiles, mode: str) -> Checkpoints:
        """Return the checkpoint callback. Args: mode: direction of `monitor`, min or max."""
        by = (self.monitor, mode) if self.average == "best" else ("step", "max")
        return Checkpoints(files, *by, self.count, self.every_steps, self.every_minutes)

    def stopping(self, mode: str) -> EarlyStopping | None:
        """Return the early stopping callback, if any. Args: mode: as for `callback`."""
        if self.patience is None:
            return None
        # at the end of a validation, before its checkpoint
        return EarlyStopping(
            self.monitor, mode=mode, patience=self.patience, check_on_train_epoch_end=False
        )
