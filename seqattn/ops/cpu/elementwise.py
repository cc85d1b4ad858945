"""Masks of dropout, exponentials and the hyperbolic tangent in a fraction of the time."""

from typing import Any

import torch
from torch import Tensor

from seqattn.ops.precision import LOG2_E

_DRAWS = 4  # 16-bit numbers in one 64-bit draw
_LEVELS = 1 << 16


def _dropped(p: float) -> int:
    """How many of the levels stand for what is dropped; all for p = 1 alone."""
    return _LEVELS if p == 1 else min(round(p * _LEVELS), _LEVELS - 1)


def factor(p: float) -> float:
    """The factor on what `drawn` keeps, by which the mean stays; 0 for p = 1."""
    kept = _LEVELS - _dropped(p)
    return _LEVELS / kept if kept else 0.0


def drawn(shape: torch.Size, p: float) -> Tensor:
    """0 with probability p, to 1/65536, else 1, as int16 on the CPU."""
    dropped = _dropped(p)
    if dropped == _LEVELS:  # which is no 16-bit number
        return torch.zeros(shape, dtype=torch.int16)
    count = shape.numel()
    draws = torch.empty(-(-count // _DRAWS), dtype=torch.int64).random_(-(2**63), None)
    uniform = draws.view(torch.int16)[:count].view(shape)
    return uniform.ge_(dropped - _LEVELS // 2)  # in place, and so in whole vectors


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept = drawn(x.shape, p)
        if x.dtype.itemsize == kept.itemsize:  # as numbers of x's own type
            one = torch.ones((), dtype=x.dtype).view(torch.int16).item()
            kept = kept.mul_(one).view(x.dtype)
        ctx.save_for_backward(kept)
        ctx.scale = factor(p)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (gradient * kept).mul_(ctx.scale), None


def drop(x: Tensor, p: float) -> Tensor:
    """Return x with a share `p` zeroed, to 1/65536, by one random draw for four numbers."""
    dropped: Tensor = _CpuDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return dropped


def exp_(x: Tensor) -> Tensor:
    """Return `x.exp_()` as 2^(x log2(e)), which Sleef does with AVX-512.

    It is best where sums of exponentials have their largest at x = 0.
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
    """Return `x.tanh_()` as 2 sigmoid(2x) - 1; tanh itself keeps more digits of what is near 0."""
    y: Tensor = _Tanh.apply(x)  # type: ignore[no-untyped-call]
    return y
