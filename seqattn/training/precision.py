"""Mixed precision for steps that clip their gradients themselves, or convert weights once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from seqattn.ops.layers import NarrowWeights

Gradients = tuple[torch.Tensor, torch.Tensor]
"""The gradient of a weight, and that of its copy."""


class OnceUnscaled(GradScaler):
    """A scaler that unscales the gradients of a step only once: before they are clipped.

    Lightning unscales them again, within the step of the optimizer.
    """

    unscaled = False

    def unscale_(self, optimizer: Optimizer) -> None:
        if not self.unscaled:
            super().unscale_(optimizer)
        self.unscaled = True

    def update(self, new_scale: float | None = None) -> None:  # type: ignore[override]
        super().update(new_scale)
        self.unscaled = False


class Shadow(MixedPrecision):
    """bf16-mixed in which linear layers read copies of their weights, converted once a step.

    Autocast converts each weight in each batch, and each gradient back. Here one operation converts
    all weights, and one all gradients of a batch; results are the same.

    Args:
        device: type of the device.
    """

    def __init__(self, device: str) -> None:
        super().__init__("bf16-mixed", device)
        self._shadow: NarrowWeights | None = None

    @contextmanager
    def copies(self, model: nn.Module) -> Iterator[None]:
        """Let the layers of a model read copies of their present weights within the block."""
        if self._shadow is None:
            self._shadow = NarrowWeights(model, torch.bfloat16)
        self._shadow.update()
        for weight, copy in zip(self._shadow.weights, self._shadow.copies, strict=True):
            copy.requires_grad_(weight.requires_grad)  # which thawing changes
        with self._shadow.used():
            yield

    def collect(self) -> None:
        """Add the gradients of the copies to those of the weights."""
        first, more = list[Gradients](), list[Gradients]()
        assert self._shadow is not None
        for weight, copy in zip(self._shadow.weights, self._shadow.copies, strict=True):
            if copy.grad is None:
                continue
            if weight.grad is None:
                weight.grad = torch.empty_like(weight)
                first.append((weight.grad, copy.grad))
            else:
                more.append((weight.grad, copy.grad))
            copy.grad = None
        if first:
            wide, narrow = zip(*first, strict=True)
            torch._foreach_copy_(wide, narrow)
        if more:
            wide, narrow = zip(*more, strict=True)
            added = [torch.empty_like(one) for one in wide]
            torch._foreach_copy_(added, narrow)  # adding other types takes an operation for each
            torch._foreach_add_(wide, added)

    def forget(self) -> None:
        """Drop the gradients of the copies, of a batch that is repeated."""
        for copy in self._shadow.copies if self._shadow else ():
            copy.grad = None
