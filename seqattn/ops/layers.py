"""Linear layers with weights that can be packed for a search, and dropout, by fast operations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn import ops
from seqattn.checking import Dropout as Share
from seqattn.ops.cpu import onednn

_LARGE, _LARGE_FOR_MKL = 1 << 13, 1 << 20
"""Minimum matrix size for packing weights, where oneDNN is faster than MKL and elsewhere."""


class Linear(nn.Linear):
    """x W^T + b, as `torch.nn.Linear`, by `ops.linear`."""

    packed: Tensor | None = None
    """The weight packed for oneDNN, within a block of `packed`."""
    narrow: tuple[Tensor, Tensor | None] | None = None
    """Weight and bias as autocast would convert them, such as to bfloat16, within a block of
    `NarrowWeights.used`."""

    def forward(self, x: Tensor) -> Tensor:
        if self.narrow is not None and torch.is_autocast_enabled(x.device.type):
            return F.linear(x, *self.narrow)
        return ops.linear(x, self.weight, self.bias, self.packed)


def can_join(x: Tensor, layers: Sequence[Linear]) -> bool:
    """Return True if `joined` serves x and is faster than a product for each layer."""
    return ops.joins_products(x) and all(
        type(layer) is Linear
        and type(layer.weight) is nn.Parameter  # not a shard of one
        and (layer.bias is None) == (layers[0].bias is None)
        for layer in layers
    )


def joint_linear(x: Tensor, layers: Sequence[Linear]) -> Sequence[Tensor]:
    """Return the outputs of linear layers for one x (..., I), by a single product.

    It reads and converts x once, as does the sum of its gradients.
    """
    weight = torch.cat([layer.weight for layer in layers])
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    outputs = F.linear(x, weight, torch.cat(biases) if biases else None)
    return outputs.split([len(layer.weight) for layer in layers], dim=-1)


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Pack the weights of a model's linear layers within the block; they must not change.

    Generation multiplies few rows at a time, so packing in every product would take as long as the
    product itself. Applies to float32 on a CPU: large matrices, or most of them where oneDNN is
    faster anyway. Blocks of several threads may overlap.
    """
    layers = [layer for layer in model.modules() if type(layer) is Linear and _worth_packing(layer)]
    for layer in layers:
        layer.packed = onednn.pack(layer.weight)
    try:
        yield
    finally:
        for layer in layers:
            layer.packed = None


def _worth_packing(layer: Linear) -> bool:
    weight, least = layer.weight, _LARGE if onednn.is_quicker() else _LARGE_FOR_MKL
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32
    return fits and weight.numel() >= least and onednn.can_pack()


class NarrowWeights:
    """Weights of a model's linear layers in another type, as autocast would convert at each call.

    Args:
        model: the model.
        kind: the type; None for no other.
    """

    def __init__(self, model: nn.Module, kind: torch.dtype | None) -> None:
        layers = [layer for layer in model.modules() if type(layer) is Linear and kind is not None]
        self._narrow = {
            layer: (layer.weight.to(kind), None if layer.bias is None else layer.bias.to(kind))
            for layer in layers
        }

    def update(self) -> None:
        """Convert the weights again, as they may have changed."""
        for layer, (weight, bias) in self._narrow.items():
            weight.copy_(layer.weight)
            if bias is not None:
                bias.copy_(layer.bias)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the layers use them under autocast within the block."""
        for layer, narrow in self._narrow.items():
            layer.narrow = narrow
        try:
            yield
        finally:
            for layer in self._narrow:
                layer.narrow = None


class Dropout(nn.Module):
    """Dropout: in training, zero a share `p` of the input and scale the rest by 1/(1-p).

    The same as `torch.nn.Dropout`, by `ops.drop`; on a CPU `p` is rounded to 1/65536.

    Args:
        p: share dropped, in [0, 1).
    """

    def __init__(self, p: Share) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return ops.drop(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"
