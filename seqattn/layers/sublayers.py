"""Sublayers of a Transformer besides attention: residual connection, feed-forward."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.layers import Dropout, Linear

Norm = Literal["layernorm", "rmsnorm"]
Activation = Literal["relu", "gelu", "swiglu"]


def make_norm(kind: Norm, dim: int) -> nn.Module:
    """Create `layernorm` (Ba et al. 2016, arXiv 1607.06450) or `rmsnorm` (Zhang and Sennrich 2019,
    arXiv 1910.07467) over the last axis of width `dim`."""
    return nn.LayerNorm(dim) if kind == "layernorm" else nn.RMSNorm(dim, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(f(norm(x))), or norm(x + dropout(f(x))) if `pre_norm` is false.

    Pre-norm as in Xiong et al. 2020 (arXiv 2002.04745), post-norm as in Vaswani et al. 2017
    (arXiv 1706.03762).

    Args:
        dim: width of x.
        norm: layernorm or rmsnorm.
        pre_norm: normalize before the sublayer.
        dropout: share of the sublayer's output dropped in training.
    """

    def __init__(self, dim: int, norm: Norm, pre_norm: bool, dropout: float) -> None:
        super().__init__()
        self.norm = make_norm(norm, dim)
        self.pre_norm = pre_norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.leave(x, sublayer(self.enter(x)))

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """Add the sublayer's output to x."""
        joined = x + self.dropout(branch)
        return joined if self.pre_norm else self.norm(joined)


class FeedForward(nn.Module):
    """Two linear layers with a nonlinearity between them (Vaswani et al. 2017, eq. 2).

    `swiglu` gates one projection by the SiLU of another (Shazeer 2020, arXiv 2002.05202), with a
    third matrix of the same size.

    Args:
        dim: width of input and output.
        hidden_dim: width between.
        activation: relu, gelu or swiglu.
    """

    def __init__(self, dim: int, hidden_dim: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        gates = 2 if activation == "swiglu" else 1
        self.inner = Linear(dim, gates * hidden_dim)
        self.outer = Linear(hidden_dim, dim)
        for matrix in self.inner.weight.chunk(gates):
            nn.init.xavier_uniform_(matrix.data)
        nn.init.xavier_uniform_(self.outer.weight)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(x)
        if self.activation == "relu":
            hidden = F.relu(hidden)
        elif self.activation == "gelu":
            hidden = F.gelu(hidden)
        else:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = F.silu(gate) * value
        return self.outer(hidden)
