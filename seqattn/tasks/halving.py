"""Batches that do not fit into the memory, taken in halves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.ops.memory import ran_out
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
        found = loss(batch)
        with torch.autocast(found.total.device.type, enabled=False):
            gradients = torch.autograd.grad(found.total, weights, allow_unused=True)
        return found._replace(total=found.total.detach()), gradients
    except RuntimeError as error:
        if not ran_out(error) or not batch.halves():
            raise
    return _of_halves(loss, batch, weights)  # out here the error holds no tensors any more


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
