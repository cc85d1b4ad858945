"""Products of batches of matrices, and their gradients, by the quicker library."""

from typing import Any

import torch
from torch import Tensor

from seqattn.ops.cpu import onednn_multiplies, quick_products
from seqattn.ops.precision import wide

FEW_ROWS = 8
"""Rows up to which the start of a product by oneDNN takes longer than it saves."""


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return x (..., M, K) @ y (..., K, N), of one shape but for the last two axes.

    x may also be one matrix that needs no gradient. In float32 on a CPU where MKL lags it is
    oneDNN's.
    """
    single = x.device.type == "cpu" and x.dtype == y.dtype == torch.float32
    if x.shape[-2] <= FEW_ROWS or not single or torch.is_autocast_enabled("cpu"):
        return x @ y
    if torch.compiler.is_compiling() or not onednn_multiplies():
        return x @ y
    out: Tensor = _Product.apply(_dense(x), _dense(y))  # type: ignore[no-untyped-call]
    return out


def exact_product(x: Tensor, y: Tensor) -> Tensor:
    """Return `product` in float32 at least on a CPU, where a softmax would read rounded scores."""
    if x.device.type != "cpu":
        return product(x, y)
    if not torch.is_autocast_enabled("cpu"):
        return product(wide(x), wide(y))
    with torch.autocast("cpu", enabled=False):
        return product(wide(x), wide(y))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        with quick_products():
            return x @ y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            of_x = product(gradient, y.mT)
        if ctx.needs_input_grad[1]:  # in the order in which y lies
            rows = y.is_contiguous()
            of_y = product(x.mT, gradient) if rows else product(gradient.mT, x).mT
        return of_x, of_y


def _dense(x: Tensor) -> Tensor:
    """Return x without gaps: a matrix, or the transpose of one."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()
