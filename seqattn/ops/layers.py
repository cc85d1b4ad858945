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
        if (narrow := self.narrow_for(x)) is not None:
            return F.linear(x, *narrow)
        return ops.linear(x, self.weight, self.bias, self.packed)

    def narrow_for(self, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Return `narrow` under autocast; else None."""
        return self.narrow if torch.is_autocast_enabled(x.device.type) else None


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
    pairs = [layer.narrow_for(x) or (layer.weight, layer.bias) for layer in layers]
    weight = torch.cat([weight for weight, _ in pairs])
    biases: list[Tensor] = [bias for _, bias in pairs if bias is not None]
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

    Attributes:
        weights, copies: weights and biases, and what they are converted to.
    """

    def __init__(self, model: nn.Module, kind: torch.dtype | None) -> None:
        layers = [layer for layer in model.modules() if type(layer) is Linear and kind is not None]
        self.weights, self.copies = list[Tensor](), list[Tensor]()
        self._narrow = dict[Linear, tuple[Tensor, Tensor | None]]()
        for layer in layers:
            own = [one for one in (layer.weight, layer.bias) if one is not None]
            copies = [one.detach().to(kind) for one in own]
            self.weights += own
            self.copies += copies
            self._narrow[layer] = copies[0], copies[1] if len(copies) > 1 else None

    @torch.no_grad()
    def update(self) -> None:
        """Convert the weights again, as they may have changed."""
        if self.copies:
            torch._foreach_copy_(self.copies, self.weights)

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
