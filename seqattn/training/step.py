"""An optimizer step, from its batches to changed weights.

Lightning calls `training_step` once per optimizer step: an item of the training loader is the list
of this rank's batches of one. `loop.py` says what happens before and after it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple, cast

import torch
from lightning import LightningModule
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from seqattn.attention.experts import auxiliary_losses
from seqattn.attention.masks import padded_right
from seqattn.ops.memory import free_cached, ran_out
from seqattn.screen import say
from seqattn.training.captured_passes import CapturedPasses, why_not
from seqattn.training.precision import Shadow
from seqattn.training.step_exchange import StepExchange
from seqattn.training.tasks.settings import Optimization, draw_seed


class BatchLoss(NamedTuple):
    """Loss of a batch, summed over its units (real tokens)."""

    total: Tensor
    number: int
    """Number of units."""
    means: Mapping[str, Tensor]
    """Further logged means over the units."""

    def detached(self) -> "BatchLoss":
        """Return a copy detached from its graph."""
        means = {name: mean.detach() for name, mean in self.means.items()}
        return self._replace(total=self.total.detach(), means=means)


class SummedStep(LightningModule):
    """Minimize a loss per unit (a real token) over the batches of an optimizer step.

    For any batches (several, uneven, on several ranks), the gradient is that of one big batch: each
    loss is a sum, divided by the units of all batches on all ranks. Auxiliary losses of attentions
    are added per unit; each is computed on a single batch.
    """

    reads_weights: ClassVar[bool] = False
    """True if the loss reads attention weights."""

    def __init__(self, model: nn.Module, optimization: Optimization) -> None:
        super().__init__()
        self.automatic_optimization = False  # a step is a `training_step`
        self.model, self.optimization, self.exchange = model, optimization, StepExchange()
        self.gradient_norm = torch.zeros(())
        """Gradient norm of the last step, before clipping."""
        self.frozen: Sequence[nn.Parameter] = ()
        """Parameters that the next step leaves as they are."""
        self.captured_sizes = 0
        """Largest number of sizes of batches whose passes are captured as CUDA graphs."""
        self.captured: CapturedPasses | None = None
        """The passes, if they can be captured; else None."""
        self._halved = False
        """True once a batch has been split."""

    @abstractmethod
    def units(self, batch: Any) -> int:
        """Return the number of units of a batch."""

    @abstractmethod
    def training_loss(self, batch: Any) -> BatchLoss:
        """Return the training loss of a batch."""

    def training_step(self, batches: Sequence[Any], index: int) -> dict[str, Tensor]:
        """Take a step, and return its loss.

        Args:
            batches: this rank's.
            index: number of the step in the epoch.
        """
        optimizer: Any = self.optimizers()
        schedule: Any = self.lr_schedulers()
        # over all ranks, which tell each other of signals, too
        units = self.exchange.sum_units(sum(map(self.units, batches)), self.trainer)
        divisor = units / self.trainer.world_size  # gradients are averaged over the ranks
        groups = [[batch] for batch in batches]
        copies = nullcontext() if self._shadow is None else self._shadow.copies(self.model)
        # Lightning's autocast is for the whole step
        with torch.autocast(self.device.type, enabled=False), copies:
            while (losses := self._accumulate(groups, index, divisor)) is None:
                self._make_room()  # for a gradient that did not fit; its batch is now in halves
            for weight in self.frozen:
                weight.grad = None
            self._unscale(optimizer.optimizer)
            norm = self._clip()
            loss = self._log(losses, norm)
            finite = self._drop_unless_finite(norm, optimizer.optimizer)
            self.exchange.update(finite, self.trainer)
            optimizer.step()
            schedule.step()
        return {"loss": loss}

    def _accumulate(
        self, groups: Sequence[list[Any]], index: int, divisor: float | Tensor
    ) -> list[BatchLoss] | None:
        """Compute the gradient of the step's batches, and their losses.

        Args:
            groups: for each batch, its parts: the batch itself, or halves of it. Parts that do not
                fit into memory are replaced by halves, see `Batch.halves`.
            index: number of the step in the epoch.
            divisor: number that losses are divided by.

        Returns:
            The losses of all parts; None to begin again, as a gradient has failed halfway.
        """
        trainer, losses = self.trainer, list[BatchLoss]()
        if self.captured is None:
            self.zero_grad()
        else:
            self.captured.begin_step()
        if self._shadow is not None:
            self._shadow.forget()
        for turn, parts in enumerate(groups):
            position = turn * trainer.world_size + trainer.global_rank
            number = 0
            while number < len(parts):
                # dropout depends on the place of the batch, or of the part, in the training only
                where = self.current_epoch, index, position, *([number] if number else [])
                torch.manual_seed(draw_seed(self.optimization.seed, *where))
                loss = self._forward(parts[number])
                if loss is None:
                    parts[number : number + 1] = parts[number].halves()
                    self._make_room()
                    continue
                is_last = parts is groups[-1] and number == len(parts) - 1
                if not self._backward(loss, parts[number], divisor, is_last):
                    self._halve(groups, self.units(parts[number]))
                    return None
                losses.append(loss.detached())
                del loss  # its graph must be gone where the next batch is captured
                number += 1
        return losses

    def _forward(self, batch: Any) -> BatchLoss | None:
        """Return the loss of a batch, None if it did not fit into memory."""
        try:
            with padded_right(), self.trainer.precision_plugin.forward_context():
                return self._loss(batch)
        except RuntimeError as error:
            if not self._splits(error, batch):
                raise
        return None

    def _backward(
        self, loss: BatchLoss, batch: Any, divisor: float | Tensor, is_last: bool
    ) -> bool:
        """Add the gradient of a batch; return False if it did not fit into memory.

        Args:
            is_last: True for the last of the step, after which ranks average their gradients.
        """
        strategy, unsynchronized = self.trainer.strategy, cast(Any, nullcontext())
        averages = is_last and isinstance(strategy, ParallelStrategy)
        if not is_last and isinstance(strategy, ParallelStrategy):
            unsynchronized = strategy.block_backward_sync()
        try:
            with unsynchronized:
                self.manual_backward(loss.total / divisor)
            self._collect()
            return True
        except RuntimeError as error:
            if averages or not self._splits(error, batch):
                raise  # other ranks would not repeat what was sent
        return False

    def capture(self) -> None:
        """Let passes be captured; say so if they cannot."""
        model: Any = self.model
        self.free_graphs()
        if not self.captured_sizes:
            return
        if reason := why_not(self, self.device):
            say(f"trainer.cuda_graphs has no effect: {reason}")
        else:
            self.captured = CapturedPasses(model, self.captured_sizes, self._collect)
            model.replayed = self.captured

    def free_graphs(self) -> None:
        """Drop captured passes."""
        self.captured = cast(Any, self.model).replayed = None

    def _collect(self) -> None:
        """Add gradients of copies of weights to those of the weights."""
        if self._shadow is not None:
            self._shadow.collect()

    @property
    def _shadow(self) -> Shadow | None:
        """What reads copies of the weights, with trainer.precision=bf16-shadow."""
        plugin = self.trainer.precision_plugin
        return plugin if isinstance(plugin, Shadow) else None

    def _splits(self, error: RuntimeError, batch: Any) -> bool:
        """Return True if a batch that caused an error can be split, and say so once."""
        sharded = any(isinstance(part, DTensor) for part in self.model.parameters())
        if sharded or not ran_out(error) or not batch.halves():
            return False  # other ranks would not repeat what was gathered
        if not self._halved:
            say(
                "out of memory; splitting the batch in half, which is slower; lower "
                "loader.max_tokens to avoid it"
            )
        self._halved = True
        return True

    def _make_room(self) -> None:
        """Free memory that is not in use."""
        if self.captured is not None:
            self.captured.stop("out of memory")
        free_cached()

    def _halve(self, groups: Sequence[list[Any]], units: int) -> None:
        """Split all parts of so many units, as none of them would fit."""
        for parts in groups:
            large = [part.halves() if self.units(part) >= units else [] for part in parts]
            parts[:] = [half for pair in zip(large, parts) for half in pair[0] or [pair[1]]]

    def _loss(self, batch: Any) -> BatchLoss:
        """Return the loss of a batch, including auxiliary losses of attentions."""
        with auxiliary_losses(self.model) as losses:
            total, number, means = self.training_loss(batch)
        means = {"loss": total.detach() / number, **means}
        if losses:
            total = total + torch.stack([part.loss for part in losses]).sum() * number
            means["balance"] = torch.stack([part.balance for part in losses]).mean()
        return BatchLoss(total, number, means)

    def _unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradient by the scale of losses in 16-mixed."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            scaler.unscale_(optimizer)

    def _clip(self) -> Tensor:
        """Clip the gradient; return its norm before."""
        limit = self.optimization.clip or torch.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if isinstance(norm, DTensor):  # of sharded gradients
            norm = norm.full_tensor()
        self.gradient_norm = norm
        return norm

    def _drop_unless_finite(self, norm: Tensor, optimizer: Optimizer) -> Tensor:
        """Drop a gradient that is not finite, so that the optimizer changes nothing.

        Args:
            norm: its norm over all ranks.

        Returns:
            False if it is not; always True in 16-mixed, which skips such updates itself.
        """
        finite = norm.isfinite()
        if self.trainer.precision == "16-mixed":
            return torch.ones_like(finite)
        if optimizer.defaults.get("fused") and finite.is_cuda:  # without waiting for the GPU
            optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
            optimizer.grad_scale = None  # type: ignore[attr-defined]
        elif not finite:
            optimizer.zero_grad()
        return finite

    def _log(self, losses: Sequence[BatchLoss], norm: Tensor) -> Tensor:
        """Log the figures of a step: means over its units on this rank, and the gradient norm.

        Returns:
            The mean loss.
        """
        number = sum(loss.number for loss in losses)
        figures = {"train/gradient_norm": norm}
        for name, mean in losses[0].means.items():
            if len(losses) > 1:
                sums = torch.stack([loss.means[name] * loss.number for loss in losses])
                mean = sums.sum() / number
            figures[f"train/{name}"] = mean
        self.log_dict(figures, batch_size=1)
        return figures["train/loss"]
