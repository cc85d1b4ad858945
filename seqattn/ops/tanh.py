"""The hyperbolic tangent, in a third of the time on a CPU."""

from typing import Any

import torch
from torch import Tensor


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.mul_(2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradients[0], y)


def tanh_(x: Tensor) -> Tensor:
    """`x.tanh_()` to rounding, as 2 sigmoid(2x) - 1 in float32 and finer on a CPU.

    It is right to 1e-7 in float32, where tanh itself keeps more digits of what is near 0.
    """
    quick = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    if not quick or torch.compiler.is_compiling():
        return x.tanh_()
    y: Tensor = _Tanh.apply(x)  # type: ignore[no-untyped-call]
    return y
