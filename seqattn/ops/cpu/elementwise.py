"""Faster dropout masks, exponentials and hyperbolic tangents."""

from typing import Any

import torch
from torch import Tensor

from seqattn.ops.precision import LOG2_E

_DRAWS = 4  # 16-bit numbers in one 64-bit draw
_LEVELS = 1 << 16


def _dropped(p: float) -> int:
    """Return the number of levels that mean "dropped"; all of them only for p = 1."""
    return _LEVELS if p == 1 else min(round(p * _LEVELS), _LEVELS - 1)


def factor(p: float) -> float:
    """Return the factor on retained values that preserves the mean; 0 for p = 1."""
    retained = _LEVELS - _dropped(p)
    return _LEVELS / retained if retained else 0.0


def random_mask(shape: torch.Size, p: float) -> Tensor:
    """Return an int16 mask on the CPU: 0 with probability p (to 1/65536), else 1."""
    dropped = _dropped(p)
    if dropped == _LEVELS:  # does not fit into 16 bits
        return torch.zeros(shape, dtype=torch.int16)
    count = shape.numel()
    draws = torch.empty(-(-count // _DRAWS), dtype=torch.int64).random_(-(2**63), None)
    uniform = draws.view(torch.int16)[:count].view(shape)
    return uniform.ge_(dropped - _LEVELS // 2)  # in place, which is vectorized


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = random_mask(x.shape, p)
        if x.dtype.itemsize == mask.itemsize:  # reinterpret as x's own type
            one = torch.ones((), dtype=x.dtype).view(torch.int16).item()
            mask = mask.mul_(one).view(x.dtype)
        ctx.save_for_backward(mask)
        ctx.scale = factor(p)
        return (x * mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (gradient * mask).mul_(ctx.scale), None


def drop(x: Tensor, p: float) -> Tensor:
    """Return x with a share `p` (to 1/65536) zeroed, with one random draw for four numbers."""
    dropped: Tensor = _CpuDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def exp_(x: Tensor) -> Tensor:
    """Return `x.exp_()` as 2^(x log2(e)), for which Sleef uses AVX-512.

    Most accurate near x = 0, where a softmax has its largest exponentials.
    """
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
    """Return `x.tanh_()` as 2 sigmoid(2x) - 1; less precise than tanh near 0."""
    y: Tensor = _Tanh.apply(x)  # type: ignore[no-untyped-call]
    return y
