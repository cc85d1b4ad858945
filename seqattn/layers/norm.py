"""Normalisation, and the residual connection around a sublayer."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from seqattn.ops.dropout import Dropout

Norm = Literal["layernorm", "rmsnorm"]


def make_norm(kind: Norm, dim: int) -> nn.Module:
    """`layernorm` (Ba et al. 2016, arXiv 1607.06450) or `rmsnorm` (Zhang and Sennrich 2019,
    arXiv 1910.07467) over the last axis of width `dim`."""
    return nn.LayerNorm(dim) if kind == "layernorm" else nn.RMSNorm(dim, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(f(norm(x))), or norm(x + dropout(f(x))) where `pre_norm` is false.

    Before the sublayer as in Xiong et al. 2020 (arXiv 2002.04745), after it as in Vaswani et al.
    2017 (arXiv 1706.03762).

    Args:
        dim: width of x.
        norm: layernorm or rmsnorm.
        pre_norm: whether the norm stands before the sublayer.
        dropout: share of the sublayer's output dropped in training.
    """

    def __init__(self, dim: int, norm: Norm, pre_norm: bool, dropout: float) -> None:
        super().__init__()
        self.norm = make_norm(norm, dim)
        self.pre_norm = pre_norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        normed: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return normed
