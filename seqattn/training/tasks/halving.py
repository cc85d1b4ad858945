"""Batches that do not fit into the memory, taken in halves."""

import sys
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


class BatchLoss(NamedTuple):
    """A batch's loss summed over its units (real tokens, questions), and how many they are."""

    total: Tensor
    units: Tensor
    number: int
    """The units as a number, which logged means are weighted by."""
    means: Mapping[str, Tensor]
    """What else is logged, over the batch's units."""

    def detached(self) -> "BatchLoss":
        """The same, with no way back to what it was made of."""
        means = {name: mean.detach() for name, mean in self.means.items()}
        return self._replace(total=self.total.detach(), means=means)

    @classmethod
    def joined(cls, parts: Sequence["BatchLoss"]) -> "BatchLoss":
        """The loss of batches together."""
        number = sum(part.number for part in parts)
        means = {
            name: torch.stack([part.means[name] * part.number for part in parts]).sum() / number
            for name in parts[0].means
        }
        total = torch.stack([part.total for part in parts]).sum()
        units = torch.stack([part.units for part in parts]).sum()
        return cls(total, units, number, means)


Loss = Callable[[Any], BatchLoss]
"""From a batch, which has `halves()`, to its loss."""
Gradients = Sequence[Tensor | None]
"""Of each weight; None of one that the loss does not know."""


def by_halves(loss: Loss, batch: Any, weights: Sequence[nn.Parameter]) -> BatchLoss:
    """The loss of a batch's halves, one at a time, each halved again until it fits.

    Their gradients are made here and at once, and the backward pass of the total gives them.

    Args:
        batch: of two rows or more.
        weights: that have gradients.

    Raises:
        RuntimeError: PyTorch's, where one row does not fit.
    """
    found, gradients = _of_halves(loss, batch, weights)
    total = _Found.apply(found.total, gradients, *weights)  # type: ignore[no-untyped-call]
    return found._replace(total=total)


def _of_halves(
    loss: Loss, batch: Any, weights: Sequence[nn.Parameter]
) -> tuple[BatchLoss, Gradients]:
    losses: list[BatchLoss] = []
    sums: list[Tensor | None] = [None] * len(weights)
    for half in batch.halves():
        found, gradients = _fitting(loss, half, weights)
        losses.append(found)
        sums = [_sum(*pair) for pair in zip(sums, gradients, strict=True)]
    return BatchLoss.joined(losses), sums


def _fitting(
    loss: Loss, batch: Any, weights: Sequence[nn.Parameter]
) -> tuple[BatchLoss, Gradients]:
    """The loss without its graph, and its gradients."""
    try:
        return _whole(loss, batch, weights)
    except RuntimeError as error:
        if not ran_out(error) or not batch.halves():
            raise
    free_cached()  # out here neither the error nor any frame holds the graph that failed
    return _of_halves(loss, batch, weights)


def _whole(loss: Loss, batch: Any, weights: Sequence[nn.Parameter]) -> tuple[BatchLoss, Gradients]:
    found = loss(batch)
    with torch.autocast(found.total.device.type, enabled=False):
        gradients = torch.autograd.grad(found.total, weights, allow_unused=True)
    return found.detached(), gradients


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    # not in place: two biases that are added to each other have one gradient, the same tensor
    return other if one is None else one if other is None else one + other


class _Found(torch.autograd.Function):
    """A total, and the gradients that were found with it."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, gradients: Gradients, *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return total.clone()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        refuse("the loss of a batch that may be halved has no second derivatives")
        return None, None, *(None if one is None else one * scale for one in ctx.gradients)


class HalvingTask(LightningModule):
    """A task whose batches are taken in halves where the memory is too small for them."""

    model: nn.Module
    _halved = False
    _taken: tuple[Any, int] = (None, 0)
    """The last batch in training, and its number."""

    @abstractmethod
    def _loss(self, batch: Any) -> BatchLoss:
        """The loss of a batch with all that is added to it."""

    @abstractmethod
    def _scaled(self, found: BatchLoss) -> Tensor:
        """What its gradients are made of."""

    @abstractmethod
    def _draw(self, batch_idx: int) -> None:
        """Seeds what is drawn for a batch."""

    def _fitting(self, batch: Any, number: int) -> BatchLoss:
        """The loss of a batch, by its halves where the memory is too small for it."""
        self._taken = batch, number
        try:
            return self._loss(batch)
        except RuntimeError as error:
            if not self._can_halve(error):
                raise
        return self._by_halves()

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Lightning's; a batch whose gradients do not fit goes on in halves.

        Not where gradients of other batches are there, which it may have added to, nor where
        other ranks were given some.
        """
        alone = self.trainer.world_size == 1
        alone = alone and all(part.grad is None for part in self.model.parameters())
        try:
            return super().backward(loss, *args, **kwargs)
        except RuntimeError as error:
            if not (alone and self._can_halve(error)):
                raise
        loss.detach_()  # whose graph Lightning would hold on to
        self.zero_grad()
        with padded_right(), self.trainer.precision_plugin.forward_context():
            loss = self._scaled(self._by_halves())
        super().backward(loss, *args, **kwargs)

    def _can_halve(self, error: RuntimeError) -> bool:
        """Whether the batch, at which this error came, can go on in halves."""
        sharded = any(isinstance(part, DTensor) for part in self.model.parameters())
        if sharded or self.trainer.precision == "16-mixed":
            return False  # other ranks would not gather weights again; gradients need their scale
        return ran_out(error) and bool(self._taken[0].halves())

    def _by_halves(self) -> BatchLoss:
        if not self._halved:
            print(
                "a batch is too large for the memory and goes on in halves, which takes longer; "
                "a smaller loader.max_tokens avoids it",
                file=sys.stderr,
            )
        self._halved = True
        batch, number = self._taken
        free_cached()
        self._draw(number)
        weights = [part for part in self.model.parameters() if part.requires_grad]
        return by_halves(self._loss, batch, weights)
