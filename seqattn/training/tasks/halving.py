"""Splitting batches that do not fit into memory."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seqattn.attention.masks import padded_right
from seqattn.ops.memory import free_cached, ran_out
from seqattn.ops.second_derivatives import refuse
from seqattn.screen import say


class BatchLoss(NamedTuple):
    """Loss of a batch summed over its units (real tokens), and their number."""

    total: Tensor
    units: Tensor
    number: int
    """Number of units, the weight of logged means."""
    means: Mapping[str, Tensor]
    """Further logged means over the batch's units."""

    def detached(self) -> "BatchLoss":
        """Return a copy detached from its graph."""
        means = {name: mean.detach() for name, mean in self.means.items()}
        return self._replace(total=self.total.detach(), means=means)

    @classmethod
    def joined(cls, parts: Sequence["BatchLoss"]) -> "BatchLoss":
        """Return the joint loss of batches."""
        number = sum(part.number for part in parts)
        means = {
            name: torch.stack([part.means[name] * part.number for part in parts]).sum() / number
            for name in parts[0].means
        }
        total = torch.stack([part.total for part in parts]).sum()
        units = torch.stack([part.units for part in parts]).sum()
        return cls(total, units, number, means)


Loss = Callable[[Any], BatchLoss]
"""Function from a batch, which has `halves()`, to its loss."""
Gradients = Sequence[Tensor | None]
"""Gradient of each weight; None if the loss does not depend on it."""


def by_halves(loss: Loss, batch: Any, weights: Sequence[nn.Parameter]) -> BatchLoss:
    """Return the loss of a batch from its halves, each halved again until it fits.

    Gradients are computed here, and returned by the backward pass of the total.

    Args:
        batch: a batch of two or more rows.
        weights: weights with gradients.

    Raises:
        RuntimeError: from PyTorch, if a single row does not fit.
    """
    loss_sum, gradients = _of_halves(loss, batch, weights)
    total = _WithGradients.apply(loss_sum.total, gradients, *weights)  # type: ignore[no-untyped-call]
    return loss_sum._replace(total=total)


def _of_halves(
    loss: Loss, batch: Any, weights: Sequence[nn.Parameter]
) -> tuple[BatchLoss, Gradients]:
    losses: list[BatchLoss] = []
    sums: list[Tensor | None] = [None] * len(weights)
    for half in batch.halves():
        half_loss, gradients = _fitting(loss, half, weights)
        losses.append(half_loss)
        sums = [_sum(*pair) for pair in zip(sums, gradients, strict=True)]
    return BatchLoss.joined(losses), sums


def _fitting(
    loss: Loss, batch: Any, weights: Sequence[nn.Parameter]
) -> tuple[BatchLoss, Gradients]:
    """Return the loss without its graph, and its gradients."""
    try:
        return _loss_and_gradients(loss, batch, weights)
    except RuntimeError as error:
        if not ran_out(error) or not batch.halves():
            raise
    free_cached()  # outside `except`, neither the error nor any frame holds the failed graph
    return _of_halves(loss, batch, weights)


def _loss_and_gradients(
    loss: Loss, batch: Any, weights: Sequence[nn.Parameter]
) -> tuple[BatchLoss, Gradients]:
    batch_loss = loss(batch)
    with torch.autocast(batch_loss.total.device.type, enabled=False):
        gradients = torch.autograd.grad(batch_loss.total, weights, allow_unused=True)
    return batch_loss.detached(), gradients


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    # not in place: two biases that are added share one gradient tensor
    return other if one is None else one if other is None else one + other


class _WithGradients(torch.autograd.Function):
    """A loss with precomputed gradients."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, gradients: Gradients, *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return total.clone()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        refuse("the loss of a batch that may be split does not support second derivatives")
        return None, None, *(None if one is None else one * scale for one in ctx.gradients)


class HalvingTask(LightningModule):
    """A task that splits batches that do not fit into memory."""

    model: nn.Module
    _halved = False
    _last_batch: tuple[Any, int] = (None, 0)
    """Last training batch, and its number."""

    @abstractmethod
    def _loss(self, batch: Any) -> BatchLoss:
        """Return the loss of a batch, including auxiliary losses."""

    @abstractmethod
    def _scaled(self, loss: BatchLoss) -> Tensor:
        """Return the scaled loss, for the backward pass."""

    @abstractmethod
    def _draw(self, batch_idx: int) -> None:
        """Seed the random numbers of a batch."""

    def _fitting(self, batch: Any, number: int) -> BatchLoss:
        """Return the loss of a batch, from its halves if it does not fit into memory."""
        self._last_batch = batch, number
        try:
            return self._loss(batch)
        except RuntimeError as error:
            if not self._can_halve(error):
                raise
        return self._by_halves()

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Run Lightning's backward pass, in halves if gradients do not fit into memory.

        It does not halve if there are gradients of other batches, which the failed pass may have
        changed, or other ranks, which may have received some.
        """
        untouched = self.trainer.world_size == 1
        untouched = untouched and all(part.grad is None for part in self.model.parameters())
        try:
            return super().backward(loss, *args, **kwargs)
        except RuntimeError as error:
            if not (untouched and self._can_halve(error)):
                raise
        loss.detach_()  # Lightning would keep its graph
        self.zero_grad()
        with padded_right(), self.trainer.precision_plugin.forward_context():
            loss = self._scaled(self._by_halves())
        super().backward(loss, *args, **kwargs)

    def _can_halve(self, error: RuntimeError) -> bool:
        """Return True if the batch that caused an error can be split."""
        sharded = any(isinstance(part, DTensor) for part in self.model.parameters())
        if sharded or self.trainer.precision == "16-mixed":
            return False  # other ranks would not gather again; gradients need their scale
        return ran_out(error) and bool(self._last_batch[0].halves())

    def _by_halves(self) -> BatchLoss:
        if not self._halved:
            say(
                "out of memory; splitting the batch in half, which is slower; lower "
                "loader.max_tokens to avoid it"
            )
        self._halved = True
        batch, number = self._last_batch
        free_cached()
        self._draw(number)
        weights = [part for part in self.model.parameters() if part.requires_grad]
        return by_halves(self._loss, batch, weights)
