"""Which learning rate a model can take, by a short training whose rate grows."""

import math

from lightning import Callback, LightningModule, Trainer
from torch.optim import Optimizer

_PAST = 0.9
"""Share of the past in the running mean of the loss."""
_DIVERGED = 4.0
"""Times the lowest loss, where the test ends."""


class RangeTest(Callback):
    """A learning-rate range test (Smith 2015, arXiv 1506.01186): the rate grows by a constant
    factor from step to step, whatever the schedule says, and the logged loss is noted.

    Lightning's `Tuner.lr_find` does not fit: it watches the number that is minimised, which here is
    a sum over a batch of any size.

    Args:
        steps: optimizer steps from the lowest rate to the highest.
        lowest, highest: rates.
    """

    def __init__(self, steps: int = 100, lowest: float = 1e-6, highest: float = 1.0) -> None:
        self.steps, self.lowest, self.highest = steps, lowest, highest
        self.rates: list[float] = []
        self.losses: list[float] = []
        """Running means of the loss, each of a batch before the step at the rate beside it."""
        self._mean = 0.0

    @property
    def suggestion(self) -> float | None:
        """The rate at which half of the loss's fall is done; None where it fell by less than 1 %,
        or was not finite from the start.

        The steepest place, which others take, moves more with noise.
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
        self.losses.append(self._mean / (1 - _PAST ** (done + 1)))  # without its beginning at 0
        self.rates.append(self.lowest * (self.highest / self.lowest) ** (done / (self.steps - 1)))
        for group in optimizer.param_groups:
            group["lr"] = self.rates[-1]
