"""Learning-rate range test."""

import math

from lightning import Callback, LightningModule, Trainer
from torch.optim import Optimizer

_PAST = 0.9
"""Decay of the running mean of the loss."""
_DIVERGED = 4.0
"""Multiple of the lowest loss at which the test ends."""


class RangeTest(Callback):
    """A learning-rate range test (Smith 2015, arXiv 1506.01186): the rate grows by a constant
    factor per step, ignoring the schedule, and the logged loss is recorded.

    Lightning's `Tuner.lr_find` does not apply: it uses the minimized number, which here is a sum
    over a batch of any size.

    Args:
        steps: optimizer steps from the lowest rate to the highest.
        lowest, highest: rates.
    """

    def __init__(self, steps: int = 100, lowest: float = 1e-6, highest: float = 1.0) -> None:
        self.steps, self.lowest, self.highest = steps, lowest, highest
        self.rates: list[float] = []
        self.losses: list[float] = []
        """Running means of the loss, each before the step at the corresponding rate."""
        self._mean = 0.0

    @property
    def suggestion(self) -> float | None:
        """Rate at which half of the decrease of the loss is reached.

        None if it decreased by less than 1 %, or was not finite from the start. The steepest point,
        which other tools use, is more sensitive to noise.
        """
        if not self.losses or min(self.losses) > 0.99 * self.losses[0]:
            return None
        half = (self.losses[0] + min(self.losses)) / 2
        return next(r for r, loss in zip(self.rates, self.losses, strict=True) if loss <= half)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        loss = float(trainer.callback_metrics["train/loss"])
        if not math.isfinite(loss) or loss > _DIVERGED * min([loss, *self.losses]):
            trainer.should_stop = True
            return
        done = len(self.rates)
        self._mean = _PAST * self._mean + (1 - _PAST) * loss
        self.losses.append(self._mean / (1 - _PAST ** (done + 1)))  # bias-corrected
        self.rates.append(self.lowest * (self.highest / self.lowest) ** (done / (self.steps - 1)))
        for group in optimizer.param_groups:
            group["lr"] = self.rates[-1] * group.get("factor", 1.0)
