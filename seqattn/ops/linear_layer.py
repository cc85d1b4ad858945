"""Linear layers that learn by `quick_products`, and whose weights can be packed for a search."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.cpu import onednn_multiplies, quick_products

_LEAST = 1 << 20
"""Multiplications from which oneDNN is quicker: it takes 10 us to find how to do a product."""
_LARGE = 1 << 20
"""Numbers of a matrix from which it is packed on any CPU."""
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
    large = x.dtype == weight.dtype == torch.float32 and x.numel() * weight.shape[0] >= _LEAST
    if not large or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if ordered is not None and not torch.is_grad_enabled():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, ordered, bias, "none", [], "")
        return out
    if torch.compiler.is_compiling() or not onednn_multiplies():
        return F.linear(x, weight, bias)
    learnt: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return learnt


def add_linear(base: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return base + x W^T, for a step of a loop: in one launch where oneDNN is not the quicker one.

    Args:
        base: (B, O).
        x: (B, I).
        weight: (O, I).
    """
    if onednn_multiplies(x):
        return base + linear(x, weight)
    return torch.addmm(base, x, weight.T)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        with quick_products():
            return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, inputs = (part.reshape(-1, part.shape[-1]) for part in (gradient, x))
        with quick_products():
            return (
                (rows @ weight).view_as(x) if of_x else None,
                rows.T @ inputs if of_weight else None,
                rows.sum(dim=0) if of_bias else None,
            )


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Within the block the weights of a model's linear layers, which must not change, are packed.

    Generation multiplies few rows at a time, so that packing takes as long as the product. It is
    oneDNN's and for float32 on a CPU, of large matrices, or of most where it is the quicker one
    anyway. Blocks of several threads may overlap.
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
    weight, least = layer.weight, _LEAST // _ROWS if onednn_multiplies() else _LARGE
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    return fits and weight.numel() >= least and can_pack()


@cache
def can_pack() -> bool:
    """Whether PyTorch has the operators, which are undocumented."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    built = torch.backends.mkldnn.is_available()
    return built and all(hasattr(torch.ops.mkldnn, name) for name in names)
