"""Learning-rate range test."""

import math
from dataclasses import replace
from pathlib import Path

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch.optim import Optimizer

from seqattn.errors import UserError
from seqattn.screen import print_table, progress
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import setup_of

_ROWS = 5  # steps between rows of the table of rates
_HORIZON = 100_000  # steps within which schedules peak, at 1 except for Noam's
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


def find_rate(run: TrainingSettings) -> float:
    """Train for 100 steps at increasing rates and print the losses, without writing a run.

    Args:
        run: checked settings.

    Returns:
        A peak rate, as `optimizer.lr`.

    Raises:
        UserError: if the data cannot be read, or the loss decreases at no rate.
    """
    if run.resumes_another:
        raise UserError("find_lr=true works on a new run only; remove resume")
    setup = setup_of(run.with_fields(resume=None))
    ranks = run.trainer.ranks * run.trainer.num_nodes
    batches = setup.step_batches or ranks * run.trainer.accumulate_grad_batches
    test = RangeTest()
    single = run.trainer.alone(**{**run.trainer.lightning, "limit_val_batches": 0})
    options = replace(single, max_steps=test.steps, max_epochs=-1, val_check_interval=1.0)
    setup.data.rank_batches = batches  # as the test has one rank
    with progress("finding a learning rate", "steps") as advance:
        ticks = LambdaCallback(on_train_batch_end=lambda *_: advance(len(test.rates), test.steps))
        trainer = made_trainer(options, Path(run.run_dir), [test, ticks])
        trainer.fit(setup.task, *(setup.data.loader(name, trainer) for name in ("train", "val")))
    suggested = test.suggestion
    if suggested is None:
        raise UserError(
            "the loss does not decrease at any learning rate from "
            f"{test.lowest:g} to {test.highest:g}"
        )
    pairs = [*zip(test.rates, test.losses, strict=True)]
    rows = {f"{rate:.1e}": f"{loss:.3f}" for rate, loss in pairs[::_ROWS]}
    print_table("Loss by rate", rows, ["loss"])
    peak = max(map(run.schedule(), range(_HORIZON)))
    print(f"optimizer.lr={suggested / peak:.2g}")
    return suggested / peak
