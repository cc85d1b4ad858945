"""Averages of checkpoints, and a moving average of the weights over steps."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from seqattn.checking import Share


def average_weights(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several state dicts of one model, summed in float64.

    Integer entries (counters) are copied from the last. A single state is returned unchanged.

    Raises:
        ValueError: if there is none, or their names differ.
    """
    sums: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for state in states:
        if last and state.keys() != last.keys():
            raise ValueError("checkpoints to average must contain the same weights")
        for name, weight in state.items():
            if weight.is_floating_point():
                sums[name] = sums[name] + weight.double() if name in sums else weight.double()
        last, count = state, count + 1
    if count == 0:
        raise ValueError("no checkpoints to average")
    return {
        name: (sums[name] / count).to(weight.dtype) if name in sums else torch.clone(weight)
        for name, weight in last.items()
    }


class MovingAverage(WeightAveraging):
    """Exponential moving average of the weights, used for validation and checkpoints.

    Args:
        decay: share of the average kept at each optimizer step.
    """

    def __init__(self, decay: Share = 0.999) -> None:
        self._move = get_ema_multi_avg_fn(decay)
        super().__init__()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # the device is known only here; the model is not on it yet
        super().__init__(trainer.strategy.root_device, False, multi_avg_fn=self._move)
        super().setup(trainer, pl_module, stage)
        self._swapped = False
        self._model, self._updated = pl_module, 0
        """Last optimizer step that was averaged; 0 for none since the start."""

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Average a step; return True only for the first, which is left to Lightning.

        PyTorch's own update reads from the device at each step whether it is the first.
        """
        if step_idx is None or step_idx + 1 == self._updated:
            return False
        began, self._updated = self._updated > 0, step_idx + 1
        if not began:
            return True
        [average] = [part for part in vars(self).values() if isinstance(part, AveragedModel)]
        pairs = zip(average.module.parameters(), self._model.parameters(), strict=True)
        averages, weights = zip(*[(mean.detach(), weight.detach()) for mean, weight in pairs])
        self._move(averages, weights, average.n_averaged)
        average.n_averaged += 1
        return False

    def state_dict(self) -> dict[str, Any]:
        known = super().state_dict()
        return {**known, "latest_update_step": max(self._updated, known["latest_update_step"])}

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_epoch_start(trainer, pl_module)
        self._swapped = True

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the average in the model for the figures that are drawn next."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_epoch_end(trainer, pl_module)
        self._swapped = False

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if self._swapped:  # a signal has interrupted a validation
            names = "state_dict", "current_model_state"
            checkpoint |= dict(zip(names, [checkpoint[name] for name in reversed(names)]))
