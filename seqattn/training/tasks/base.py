"""Base class of tasks: optimization, validation and exact resumption."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from seqattn.attention.experts import auxiliary_losses
from seqattn.attention.masks import padded_right
from seqattn.generation.captured_steps import forget
from seqattn.ops.gpu import multiply_all
from seqattn.training.agreement import Agreement
from seqattn.training.optim import apply_settings, settings_of
from seqattn.training.parts import regrouped
from seqattn.training.tasks.halving import BatchLoss, HalvingTask
from seqattn.training.tasks.settings import Optimization, Sample, Validation, draw_seed

_UNITS = 1000.0  # a batch's loss is per thousand units until its gradient is normalized


class SummedTask(HalvingTask):
    """Minimize a loss per unit (a real token) over the effective batch.

    For any batches of an optimizer step (accumulated, uneven, on several ranks), the gradient is
    that of one big batch: sums are accumulated, and divided once by all units. Auxiliary losses of
    attentions are added per unit; each is computed on a single batch.

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
        super().__init__()
        self.model = model
        self.optimization = optimization
        self.loss_metric = loss_metric
        self.validation = validation
        self.output_metric: Any = None if validation is None else validation.metric()
        self.samples: list[Sample] = []
        """Some outputs of the last validation, empty without any."""
        self._accumulated: BatchLoss | None = None
        """Loss of all batches since the last optimizer step, on this rank."""
        self.gradient_norm = torch.zeros(())
        """Gradient norm of the last optimizer step, before clipping."""
        self.agreement = Agreement()
        self._sums_ordered = False
        self._settings: list[dict[str, Any]] = []
        """Settings of the optimizer's groups, before any step."""
        self._frozen: list[nn.Parameter] = []
        """Parameters that the next step leaves as they are."""
        if optimization.parts.freeze_steps is None:
            for weight in optimization.parts.frozen(model):
                weight.requires_grad_(False)

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Copy a batch from page-locked memory without waiting for the GPU."""
        return batch.to(device, non_blocking=device.type == "cuda")

    @abstractmethod
    def training_loss(self, batch: Any) -> BatchLoss:
        """Return the training loss of a batch."""

    @abstractmethod
    def validation_sums(self, batch: Any) -> Sequence[Any]:
        """Return the arguments of the loss metric's update for a batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with padded_right():
            loss = self._fitting(batch, batch_idx)
        before, new = self._accumulated, loss.detached()
        self._accumulated = new if before is None else BatchLoss.joined([before, new])
        means = {f"train/{name}": mean for name, mean in self._accumulated.means.items()}
        self.log_dict(means, batch_size=loss.number)
        return self._scaled(loss)

    def _loss(self, batch: Any) -> BatchLoss:
        """Return the loss of a batch, including auxiliary losses of attentions."""
        with auxiliary_losses(self.model) as losses:
            total, units, number, means = self.training_loss(batch)
        means = {"loss": total.detach() / units, **means}
        if losses:
            total = total + torch.stack([part.loss for part in losses]).sum() * units
            means["balance"] = torch.stack([part.balance for part in losses]).mean()
        return BatchLoss(total, units, number, means)

    def _scaled(self, loss: BatchLoss) -> Tensor:
        # Lightning divides by the number of accumulated batches, `on_before_optimizer_step` by the
        # units of all of them
        return loss.total / _UNITS * self.trainer.accumulate_grad_batches

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

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        assert self._accumulated is not None
        for weight in self._frozen:
            weight.grad = None
        units = self.agreement.reduce(self._accumulated.units, self.trainer)
        # gradients were averaged over the ranks, so their sum is world_size times that
        scale = _UNITS * self.trainer.world_size / units
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        # a float64 factor would launch a kernel per gradient
        multiply_all(gradients, float(scale) if scale.is_cpu else scale.float())
        self._accumulated = None

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        limit = float("inf") if not gradient_clip_val else float(gradient_clip_val)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if isinstance(norm, DTensor):  # of sharded gradients
            norm = norm.full_tensor()
        self.gradient_norm = norm
        self.log("train/gradient_norm", norm, batch_size=1)
        self.agreement.settle(norm, optimizer, self.trainer)

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
        self.agreement.forget()
        [optimizer], [config] = self.trainer.optimizers, self.trainer.lr_scheduler_configs
        schedule: Any = config.scheduler
        factor = self.optimization.schedule(schedule.last_epoch)
        schedule.base_lrs = apply_settings(self._settings, optimizer, factor)
        if self.optimization.parts.freeze:
            self._freeze()
            for weight in self._frozen:
                optimizer.state.pop(weight, None)  # of a run that has trained it

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        optimizer = self.optimization.make_optimizer(self.model, fused=False)
        states = [regrouped(one, self.model, optimizer) for one in checkpoint["optimizer_states"]]
        checkpoint["optimizer_states"] = states

    def _freeze(self) -> None:
        """Freeze the frozen parts, or thaw them after `freeze_steps`."""
        parts = self.optimization.parts
        weights = parts.frozen(self.model)
        freezes = parts.freezes(self.global_step)
        self._frozen = weights if freezes else []
        # DDP and FSDP expect the same gradients in all steps; they are dropped before a step
        if isinstance(self.trainer.strategy, SingleDeviceStrategy):
            for weight in weights:
                weight.requires_grad_(not freezes)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if not self._sums_ordered:
            self._order_sums(batch)
        if self._frozen and not self.optimization.parts.freezes(self.global_step):
            self._freeze()
        self._draw(batch_idx)

    def _draw(self, batch_idx: int) -> None:
        """Seed the random numbers of a batch by its position only."""
        trainer = self.trainer
        step, turn = divmod(batch_idx, trainer.accumulate_grad_batches)
        number = turn * trainer.world_size + trainer.global_rank
        torch.manual_seed(draw_seed(self.optimization.seed, self.current_epoch, step, number))

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
