"""Base class of tasks: optimization, validation and exact resumption."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from seqattn.attention.masks import padded_right
from seqattn.generation.captured_steps import forget
from seqattn.training.optim import apply_settings, settings_of
from seqattn.training.parameter_groups import regrouped
from seqattn.training.step import SummedStep
from seqattn.training.tasks.settings import Optimization, Sample, Validation, draw_seed


class SummedTask(SummedStep):
    """A task's validation, optimizer and exact resumption, around `SummedStep`.

    Args:
        loss_metric: a torchmetric updated with `validation_sums`.
        validation: generation and scoring of outputs; None for the loss only.
    """

    def __init__(
        self,
        model: nn.Module,
        optimization: Optimization,
        loss_metric: Any,
        validation: Validation | None,
    ) -> None:
        super().__init__(model, optimization)
        self.loss_metric = loss_metric
        self.validation = validation
        self.output_metric: Any = None if validation is None else validation.metric()
        self.samples: list[Sample] = []
        """Some outputs of the last validation, empty without any."""
        self._sums_ordered = False
        self._settings: list[dict[str, Any]] = []
        """Settings of the optimizer's groups, before any step."""
        if optimization.parameter_groups.freeze_steps is None:
            for weight in optimization.parameter_groups.frozen(model):
                weight.requires_grad_(False)

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Copy a batch, or those of a step, from page-locked memory without waiting for the GPU."""
        if isinstance(batch, list):
            return [self.transfer_batch_to_device(part, device, dataloader_idx) for part in batch]
        return batch.to(device, non_blocking=device.type == "cuda")

    @abstractmethod
    def validation_sums(self, batch: Any) -> Sequence[Any]:
        """Return the arguments of the loss metric's update for a batch."""

    @property
    def generates_now(self) -> bool:
        """True if this validation generates outputs."""
        plan = self.validation
        if plan is None or plan.every == 0 or self.trainer.sanity_checking:
            return False
        return (self.current_epoch + 1) % plan.every == 0

    def on_validation_epoch_start(self) -> None:
        self.samples = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with padded_right():
            self.loss_metric.update(*self.validation_sums(batch))
        if self.validation is None or not self.generates_now:
            return
        new = self.validation.samples(batch)
        if new:  # none of a batch beyond `task.validation.sentences`
            self.output_metric.update([s.hypothesis for s in new], [s.references for s in new])
        self.samples = sorted([*self.samples, *new], key=lambda sample: sample.row)[:8]

    def on_validation_epoch_end(self) -> None:
        scores: dict[str, Tensor] = {}
        for metric in (self.loss_metric, *([self.output_metric] * self.generates_now)):
            scores |= {f"val/{name}": x.to(self.device) for name, x in metric.compute().items()}
            metric.reset()
        forget(self.model)  # training needs the memory
        # already equal on every rank, since metrics sum over ranks; Lightning requires sync_dist
        self.log_dict(scores, sync_dist=True)

    def configure_optimizers(self) -> Any:
        fused = self.trainer.precision != "16-mixed"
        optimizer = self.optimization.make_optimizer(self.model, fused)
        self._settings = settings_of(optimizer)
        # a function: the settings of an object would be saved and restored by checkpoints
        schedule = LambdaLR(optimizer, lambda step: self.optimization.schedule(step))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "lr"},
        }

    def forward(self, batch: Any) -> Tensor:
        """Return the training loss of a batch, summed over its units."""
        with padded_right():
            return self.training_loss(batch).total

    def on_train_start(self) -> None:
        self._sums_ordered = False
        self.exchange.reset()
        self.capture()
        [optimizer], [config] = self.trainer.optimizers, self.trainer.lr_scheduler_configs
        schedule: Any = config.scheduler
        factor = self.optimization.schedule(schedule.last_epoch)
        schedule.base_lrs = apply_settings(self._settings, optimizer, factor)
        if self.optimization.parameter_groups.freeze:
            self._freeze()
            for weight in self.frozen:
                optimizer.state.pop(weight, None)  # of a run that has trained it

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        optimizer = self.optimization.make_optimizer(self.model, fused=False)
        states = checkpoint["optimizer_states"]
        states[:] = [regrouped(state, self.model, optimizer) for state in states]

    def _freeze(self) -> None:
        """Freeze the frozen parts, or thaw them after `freeze_steps`."""
        groups = self.optimization.parameter_groups
        weights = groups.frozen(self.model)
        freezes = groups.freezes(self.global_step)
        self.frozen = weights if freezes else []
        # DDP and FSDP expect the same gradients in all steps; they are dropped before a step
        if isinstance(self.trainer.strategy, SingleDeviceStrategy):
            for weight in weights:
                weight.requires_grad_(not freezes)

    def on_train_batch_start(self, batches: Sequence[Any], index: int) -> None:
        if not self._sums_ordered:
            self._order_sums(batches[0])
        if self.frozen and not self.optimization.parameter_groups.freezes(self.global_step):
            self._freeze()

    def _order_sums(self, batch: Any) -> None:
        """Fix DDP's order of summing gradients, which it determines in a first pass.

        Otherwise, the first step after a stop would sum in a different order than in an
        uninterrupted run; for two ranks the order does not matter.
        """
        self._sums_ordered = True
        trained = self.trainer.model
        if isinstance(trained, DistributedDataParallel) and self.trainer.world_size > 2:
            with self.trainer.precision_plugin.forward_context():
                trained(batch).backward()
            self.zero_grad()

    def on_validation_start(self) -> None:
        torch.manual_seed(draw_seed(self.optimization.seed, self.global_step))
