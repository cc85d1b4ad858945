"""Where a training stands, in three numbers, and Lightning's counters made from them."""

import hashlib
from typing import Any, NamedTuple

from lightning import Trainer


class Place(NamedTuple):
    """A place between two optimizer steps.

    Args:
        step: optimizer steps taken.
        epoch: from 0.
        within: steps of that epoch that were taken, or passed over.
        validated: whether nothing is left to do before the next step; False where a validation is.
    """

    step: int = 0
    epoch: int = 0
    within: int = 0
    validated: bool = True

    @classmethod
    def of(cls, trainer: Trainer, validated: bool) -> "Place":
        """Where a trainer stands, after an optimizer step."""
        batches = trainer.fit_loop.epoch_loop.batch_idx + 1
        within = -(-batches // trainer.accumulate_grad_batches)
        return cls(trainer.global_step, trainer.current_epoch, within, validated)

    def settled(self, steps: int) -> "Place":
        """The same place, an epoch's end being the next one's start. Args: steps: of an epoch."""
        if self.within < steps or not self.validated:
            return self
        return self._replace(epoch=self.epoch + 1, within=0)

    def counters(self, batches: int, accumulated: int) -> dict[str, Any]:
        """The state of Lightning's loops at this place, as its checkpoints hold it.

        Args:
            batches: of an epoch, on a rank.
            accumulated: batches of a step, on a rank.
        """
        batch = min(self.within * accumulated, batches)
        epochs = _counter(self.epoch) | dict.fromkeys(
            ("ready", "started"), self.epoch + (batch > 0)
        )
        steps, checked = _counter(self.step), _counter(0)
        if not self.validated:  # as if stopped in the first batch of the validation
            checked |= {"ready": 1, "started": 1}
        part = "epoch_loop."
        return {
            "fit_loop": {
                "state_dict": {},
                "epoch_progress": {"total": epochs, "current": dict(epochs)},
                f"{part}state_dict": {"_batches_that_stepped": self.step - (not self.validated)},
                f"{part}batch_progress": {
                    "total": _counter(self.epoch * batches + batch),
                    "current": _counter(batch),
                    "is_last_batch": False,
                },
                f"{part}automatic_optimization.optim_progress": {
                    "optimizer": {
                        name: {"total": steps, "current": dict(steps)}
                        for name in ("step", "zero_grad")
                    }
                },
                f"{part}val_loop.batch_progress": {
                    "total": checked,
                    "current": dict(checked),
                    "is_last_batch": False,
                },
            }
        }


def _counter(number: int) -> dict[str, int]:
    return dict.fromkeys(("ready", "started", "processed", "completed"), number)


def steps_now(trainer: Trainer) -> bool:
    """Return True if the batch that ends has moved the weights, rather than been accumulated."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    if progress.is_last_batch or progress.current.ready == trainer.num_training_batches:
        return True
    return progress.current.ready % trainer.accumulate_grad_batches == 0


def draw_seed(*numbers: int) -> int:
    """A seed of 63 bits for the draws that some numbers name: the run's seed, an epoch, a step."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
