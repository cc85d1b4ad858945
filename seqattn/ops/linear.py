"""Linear layers whose products are oneDNN's where PyTorch's own are slower.

On CPUs of AMD with AVX-512 it multiplies float32 2.2 times as fast (see `mkl_lags`), and on others
large weights that lie as it reads them. Its operator is undocumented, and used where it is there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.cpu import mkl_lags

_LEAST = 1 << 20
"""Multiplications from which oneDNN is quicker: it takes 10 us to find how to do a product."""
_LARGE = 1 << 20
"""Numbers of a matrix from which it is packed whatever the CPU."""
_ROWS = 128  # that a step of a search multiplies, about


class Linear(nn.Linear):
    """x W^T + b, as `torch.nn.Linear`, by the quicker product."""

    ordered: Tensor | None = None
    """The weight as oneDNN reads it, where it is `packed`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.ordered)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, ordered: Tensor | None = None
) -> Tensor:
    """The same as `torch.nn.functional.linear`, by the quicker product.

    Args:
        x: (..., I).
        weight: (O, I).
        bias: (O,); None for none.
        ordered: the weight as oneDNN reads it, for products without gradients; None for none.
    """
    own = x.dtype == weight.dtype == torch.float32 and x.numel() * weight.shape[0] >= _LEAST
    if not own or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if torch.compiler.is_compiling() or not (ordered is not None or onednn_is_quicker()):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        learnt: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return learnt
    return _product(x, weight if ordered is None else ordered, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, inputs = (part.reshape(-1, part.shape[-1]) for part in (gradient, x))
        wanted = ctx.needs_input_grad
        return (
            linear(gradient, weight.T) if wanted[0] else None,
            linear(rows.T, inputs.T) if wanted[1] else None,
            rows.sum(dim=0) if wanted[2] else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, dense(weight), bias, "none", [], "")
    return out


def dense(matrix: Tensor) -> Tensor:
    """The same without gaps between rows or columns, with which oneDNN is 2,000 times slower."""
    if matrix.layout is not torch.strided or matrix.is_contiguous() or matrix.T.is_contiguous():
        return matrix
    return matrix.contiguous()


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Within the block the weights of a model's linear layers, which must not change, are packed.

    Generation multiplies few rows at a time, so that packing takes as long as the product. It is
    oneDNN's and for float32 on a CPU; other layers stay as they are. Blocks of several threads may
    overlap.
    """
    layers = [layer for layer in model.modules() if type(layer) is Linear and _worth_packing(layer)]
    for layer in layers:
        weight = layer.weight.detach()
        layer.ordered = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    try:
        yield
    finally:
        for layer in layers:
            layer.ordered = None


def _worth_packing(layer: Linear) -> bool:
    weight, least = layer.weight, _LEAST // _ROWS if onednn_is_quicker() else _LARGE
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    return fits and weight.numel() >= least and has_onednn()


def onednn_is_quicker() -> bool:
    """Whether float32 products of any size are quicker by oneDNN."""
    return mkl_lags() and has_onednn()


@cache
def has_onednn() -> bool:
    """Whether PyTorch has the operators."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    built = torch.backends.mkldnn.is_available()
    return built and all(hasattr(torch.ops.mkldnn, name) for name in names)
