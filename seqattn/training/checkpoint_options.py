"""What a run keeps of its weights, and when it stops early."""

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
    """Which weights a run keeps, and when it stops early.

    Args:
        monitor: what best means, and what early stopping watches, such as val/loss or val/bleu.
        average: which weights the bundle averages, of those that were validated: best or last.
        count: how many of them.
        every_steps: optimizer steps from one checkpoint to the next; None for validations alone.
        every_minutes: minutes after which another is due, so that a long epoch may be killed.
        patience: validations without a better one after which training stops; None for never.
    """

    monitor: str = "val/loss"
    average: Literal["best", "last"] = "best"
    count: Annotated[int, Ge(1), Le(1000)] = 1
    every_steps: Annotated[Count | None, Role.NOTE] = None
    every_minutes: Annotated[Annotated[float, Gt(0), Le(10**6)] | None, Role.NOTE] = 10.0
    patience: Count | None = None

    def callback(self, files: CheckpointFiles, mode: str) -> Checkpoints:
        """Saves checkpoints. Args: mode: which way of `monitor` is better, min or max."""
        by = (self.monitor, mode) if self.average == "best" else ("step", "max")
        return Checkpoints(files, *by, self.count, self.every_steps, self.every_minutes)

    def stopping(self, mode: str) -> list[EarlyStopping]:
        """Early stopping, where there is any. Args: mode: as for `callback`."""
        if self.patience is None:
            return []
        # at a validation's end, before the checkpoint that follows it
        return [
            EarlyStopping(
                self.monitor, mode=mode, patience=self.patience, check_on_train_epoch_end=False
            )
        ]
