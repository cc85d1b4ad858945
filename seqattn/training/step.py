"""An optimizer step, from its batches to changed weights.

Lightning calls `training_step` once per optimizer step: an item of the training loader is the list
of this rank's batches of one. `loop.py` says what happens before and after it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

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
from seqattn.training.agreement import Agreement
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

    model: nn.Module
    optimization: Optimization
    agreement: Agreement
    gradient_norm: Tensor
    """Gradient norm of the last step, before clipping."""
    frozen: Sequence[nn.Parameter] = ()
    """Parameters that the next step leaves as they are."""
    _halved = False
    """True once a batch has been split."""

    @abstractmethod
    def units(self, batch: Any) -> int:
        """Return the number of units of a batch."""

    @abstractmethod
    def training_loss(self, batch: Any) -> BatchLoss:
        """Return the training loss of a batch."""

    def training_step(self, batches: Sequence[Any], index: int) -> None:
        """Take a step. Args: batches: this rank's; index: number of the step in the epoch."""
        optimizer: Any = self.optimizers()
        schedule: Any = self.lr_schedulers()
        # over all ranks, which tell each other of signals, too
        units = self.agreement.reduce(sum(map(self.units, batches)), self.trainer)
        share = units / self.trainer.world_size  # gradients are averaged over the ranks
        groups = [[batch] for batch in batches]
        with torch.autocast(self.device.type, enabled=False):  # Lightning's is for the whole step
            while not (losses := self._accumulate(groups, index, share)):
                free_cached()  # a batch did not fit into memory, and is now in halves
            for weight in self.frozen:
                weight.grad = None
            norm = self._clip(optimizer.optimizer)
            self._log(losses, norm)
            # drops a gradient that is not finite
            self.agreement.settle(norm, optimizer.optimizer, self.trainer)
            optimizer.step()
            schedule.step()

    def _accumulate(
        self, groups: Sequence[list[Any]], index: int, share: float | Tensor
    ) -> list[BatchLoss]:
        """Compute the gradient of the step's batches.

        Args:
            groups: for each batch, its parts: the batch itself, or halves of it.
            index: number of the step in the epoch.
            share: number that losses are divided by.

        Returns:
            The losses of all parts; none if one did not fit into memory: its halves replace it.
        """
        trainer, last = self.trainer, groups[-1][-1]
        self.zero_grad()
        losses: list[BatchLoss] = []
        for turn, parts in enumerate(groups):
            place = turn * trainer.world_size + trainer.global_rank
            # dropout depends on the batch's place in the training only
            torch.manual_seed(draw_seed(self.optimization.seed, self.current_epoch, index, place))
            for number, part in enumerate(parts):
                loss = self._backward(part, share, part is last)
                if loss is None:
                    parts[number : number + 1] = part.halves()
                    return []
                losses.append(loss)
        return losses

    def _backward(self, batch: Any, share: float | Tensor, is_last: bool) -> BatchLoss | None:
        """Add the gradient of a batch.

        Args:
            batch: a batch, or a part of one.
            share: number that its loss is divided by.
            is_last: True for the last of the step, after which ranks average their gradients.

        Returns:
            Its loss; None if it did not fit into memory, and may be split.
        """
        strategy, averaging = self.trainer.strategy, False
        alone: Any = nullcontext()
        if isinstance(strategy, ParallelStrategy) and not is_last:
            alone = strategy.block_backward_sync()
        try:
            with alone:
                with padded_right(), self.trainer.precision_plugin.forward_context():
                    loss = self._loss(batch)
                averaging = is_last and self.trainer.world_size > 1
                self.manual_backward(loss.total / share)
                return loss.detached()
        except RuntimeError as error:
            sharded = any(isinstance(part, DTensor) for part in self.model.parameters())
            if averaging or sharded or not ran_out(error) or not batch.halves():
                raise  # other ranks would not repeat what was sent or gathered
        if not self._halved:
            say(
                "out of memory; splitting the batch in half, which is slower; lower "
                "loader.max_tokens to avoid it"
            )
        self._halved = True
        return None

    def _loss(self, batch: Any) -> BatchLoss:
        """Return the loss of a batch, including auxiliary losses of attentions."""
        with auxiliary_losses(self.model) as losses:
            total, number, means = self.training_loss(batch)
        means = {"loss": total.detach() / number, **means}
        if losses:
            total = total + torch.stack([part.loss for part in losses]).sum() * number
            means["balance"] = torch.stack([part.balance for part in losses]).mean()
        return BatchLoss(total, number, means)

    def _clip(self, optimizer: Optimizer) -> Tensor:
        """Clip the gradient; return its norm before."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:  # in 16-mixed
            scaler.unscale_(optimizer)
        limit = self.optimization.clip or torch.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if isinstance(norm, DTensor):  # of sharded gradients
            norm = norm.full_tensor()
        self.gradient_norm = norm
        return norm

    def _log(self, losses: Sequence[BatchLoss], norm: Tensor) -> None:
        """Log the figures of a step: means over its units on this rank, and the gradient norm."""
        number = sum(loss.number for loss in losses)
        figures = {"train/gradient_norm": norm}
        for name, mean in losses[0].means.items():
            if len(losses) > 1:
                sums = torch.stack([loss.means[name] * loss.number for loss in losses])
                mean = sums.sum() / number
            figures[f"train/{name}"] = mean
        self.log_dict(figures, batch_size=1)
