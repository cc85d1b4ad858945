"""The exponential and the hyperbolic tangent in a fraction of the time on a CPU."""

import math
from typing import Any

import torch
from torch import Tensor

from seqattn.ops.cpu import mkl_lags

LOG2_E = math.log2(math.e)


def exp_(x: Tensor) -> Tensor:
    """`x.exp_()`, as 2^(x log2(e)) where that is quicker; without gradients.

    It is right to |x| * 1e-7 of itself in float32, and so best where sums of exponentials have
    their largest at x = 0.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not mkl_lags():
        return x.exp_()
    return x.mul_(LOG2_E).exp2_()


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
