"""Linear layers in int8: half the time and a quarter of the file size.

Each row of a matrix has its own scale, and so has each row of the inputs, computed on the fly
(dynamic per-token quantization: Yao et al. 2022, arXiv 2206.01861). So no row depends on another,
and integer sums are exact in any order.
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.cpu import onednn
from seqattn.ops.layers import Linear

_LEAST = 1 << 16
"""Matrix size below which quantizing the inputs takes longer than the product saves."""
_TINY = 1e-30


class Rounded(NamedTuple):
    """A matrix (O, I) as int8 in [-127, 127], times a bfloat16 scale (O, 1) for each row.

    With so few bits in a scale, products are exact in float32, which makes rounding idempotent.
    """

    numbers: Tensor
    scale: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> "Rounded":
        """Return the nearest representation of a float32 matrix."""
        scale = (matrix.abs().amax(dim=1, keepdim=True).clamp(min=_TINY) / 127).bfloat16()
        return cls((matrix / scale.float()).round().to(torch.int8), scale)

    @property
    def matrix(self) -> Tensor:
        """Return the matrix (O, I) in float32."""
        return self.numbers * self.scale.float()


class Int8Linear(nn.Linear):
    """A linear layer with the frozen weights of a `Rounded` matrix.

    On a CPU with int8 products, and without gradients, the inputs are rounded too, each row scaled
    by its largest absolute value; elsewhere it computes in float32.
    """

    rounded: tuple[Tensor, Tensor] | None = None
    """The int8 values (I, O), and the scales (1, O) of the outputs."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not (onednn.can_multiply(x, x) and multiplies_int8()):
            return super().forward(x)
        if self.rounded is None:
            numbers, scale = Rounded.of(self.weight.detach())
            self.rounded = numbers.T, scale.float().T / 127
        flat = x.reshape(-1, self.in_features)
        largest = flat.abs().amax(dim=1, keepdim=True).clamp_(min=_TINY)
        rows = (flat * (127 / largest)).round_().to(torch.int8)
        sums = torch._int_mm(rows, self.rounded[0])  # (N, I) x (I, O) -> (N, O) int32
        out = (sums * self.rounded[1]).mul_(largest)
        if self.bias is not None:
            out.add_(self.bias)
        return out.view(*x.shape[:-1], self.out_features)


def plain_int8_linear(layer: Int8Linear, x: Tensor) -> Tensor:
    """Compute an `Int8Linear` of x (..., I) as on a CPU with int8 products: (..., O)."""
    step = x.abs().amax(dim=-1, keepdim=True).clamp(min=_TINY) / 127
    return F.linear((x / step).round() * step, layer.weight, layer.bias)


def round_weights(model: nn.Module) -> None:
    """Round the matrices of linear layers and embeddings in place, and freeze the model.

    Large linear layers become `Int8Linear`. Recurrent layers stay in float32: PyTorch's int8 ones
    have one scale for all rows of a batch, so rows would depend on each other.
    """
    for table in matrices(model):
        table.data = Rounded.of(table.data).matrix
    for layer in model.modules():
        if not (type(layer) is nn.Linear or type(layer) is Linear):
            continue
        # with a single column, `_int_mm` reads the wrong memory
        if layer.weight.numel() >= _LEAST and layer.in_features > 1:
            layer.__class__ = Int8Linear
    model.requires_grad_(False)


def matrices(model: nn.Module) -> list[Tensor]:
    """Return the weights of a model's linear layers and embeddings, each once."""
    layers = (layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Embedding))
    return list({id(layer.weight): layer.weight for layer in layers}.values())


@cache
def multiplies_int8() -> bool:
    """Return True if int8 products are exact and fast: x86 with VNNI, through oneDNN."""
    check = getattr(torch.cpu, "_is_vnni_supported", None)  # undocumented, as is `_int_mm`
    return bool(check and check()) and torch.backends.mkldnn.is_available()
