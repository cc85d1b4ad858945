"""What every task has in common: how its weights move, and how a run goes on where it stopped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from seqattn.attention.base import AuxiliaryLoss
from seqattn.errors import UserError
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import Schedule

_UNITS = 1000.0  # a batch's loss is given per thousand units until its gradient is normalised


@dataclass(frozen=True)
class Optimization:
    """How weights move.

    Args:
        optimizer: makes the optimizer from (model, fused).
        schedule: factor on the learning rate, by optimizer step.
        label_smoothing: share of a target's probability spread over the vocabulary, from 0 up to
            but not 1.
        teacher_forcing: share of target tokens that are given, by optimizer step.

    Raises:
        UserError: for a share out of its range.
    """

    optimizer: Callable[..., Optimizer]
    schedule: Schedule
    label_smoothing: float = 0.0
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise UserError(
                f"task.label_smoothing must be at least 0 and below 1, got {self.label_smoothing}"
            )


class SummedTask(LightningModule):
    """Minimises a loss per unit (a real token, a question) over the whole effective batch.

    Whatever batches an optimizer step is made of (accumulated, uneven, on several ranks), its
    gradient is that of one big batch: sums are accumulated, and divided once by all units. The
    auxiliary losses of attentions that have one are added per unit; each is of one batch.

    Args:
        model: whose weights move.
        optimization: optimizer and schedule.
    """

    model: nn.Module

    def __init__(self, model: nn.Module, optimization: Optimization) -> None:
        super().__init__()
        self.model = model
        self.optimization = optimization
        self.window_units = torch.zeros((), dtype=torch.long)
        """Units since the last optimizer step, on this rank."""
        self._random_state: Tensor | None = None
        self._cuda_random_state: Tensor | None = None

    def summed(
        self, total: Tensor, units: Tensor, losses: Sequence[AuxiliaryLoss], count: int
    ) -> Tensor:
        """What `training_step` is to give for a batch.

        Args:
            total: the batch's loss, summed over its units.
            units: how many they are.
            losses: of the attentions, in this batch.
            count: `units` as a number, which the logged balance is weighted by.
        """
        self.window_units = self.window_units.to(units.device) + units
        if losses:
            total = total + torch.stack([part.loss for part in losses]).sum() * units
            balance = torch.stack([part.balance for part in losses]).mean()
            self.log("train/balance", balance, batch_size=count)
        # Lightning divides by the number of accumulated batches, `on_before_optimizer_step` by the
        # units of all of them
        return total / _UNITS * self.trainer.accumulate_grad_batches

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        units = self.window_units.double()
        if self.trainer.world_size > 1:
            units = self.trainer.strategy.reduce(units, reduce_op="sum")
        # gradients were averaged over the ranks, so their sum is world_size times that
        scale = _UNITS * self.trainer.world_size / units
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, float(scale))
        self.window_units = torch.zeros_like(self.window_units)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        limit = float("inf") if not gradient_clip_val else float(gradient_clip_val)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.log("train/gradient_norm", norm, batch_size=1)

    def configure_optimizers(self) -> Any:
        fused = self.trainer.precision != "16-mixed"
        optimizer = self.optimization.optimizer(self.model, fused=fused)
        schedule = LambdaLR(optimizer, self.optimization.schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "lr"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["random_state"] = torch.get_rng_state()
        if torch.cuda.is_available():
            checkpoint["cuda_random_state"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._random_state = checkpoint.get("random_state")
        self._cuda_random_state = checkpoint.get("cuda_random_state")

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Draws go on where the checkpoint left them, whatever was drawn while resuming."""
        if self._random_state is not None:
            torch.set_rng_state(self._random_state.cpu())
            self._random_state = None
        if self._cuda_random_state is not None:
            torch.cuda.set_rng_state(self._cuda_random_state.cpu())
            self._cuda_random_state = None
