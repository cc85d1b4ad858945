"""Sublayers of a Transformer besides attention: residual connection, feed-forward."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.layers import Dropout, Linear

Norm = Literal["layernorm", "rmsnorm"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"]
_GELU_TANH = partial(F.gelu, approximate="tanh")
_FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": _GELU_TANH,
    "silu": F.silu,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": _GELU_TANH,
}
GATED: tuple[Activation, ...] = ("swiglu", "geglu", "geglu_tanh")
"""Activations that multiply one projection by the nonlinearity of another."""


def make_norm(kind: Norm, dim: int, bias: bool = True) -> nn.Module:
    """Create `layernorm` (Ba et al. 2016, arXiv 1607.06450) or `rmsnorm` (Zhang and Sennrich 2019,
    arXiv 1910.07467) over the last axis of width `dim`; only the former has a bias."""
    return nn.LayerNorm(dim, bias=bias) if kind == "layernorm" else nn.RMSNorm(dim, eps=1e-6)


class Residual(nn.Module):
    """x + dropout(f(norm(x))), or norm(x + dropout(f(x))) if `pre_norm` is false.

    Pre-norm as in Xiong et al. 2020 (arXiv 2002.04745), post-norm as in Vaswani et al. 2017
    (arXiv 1706.03762).

    Args:
        norm: the norm, over the width of x.
        pre_norm: normalize before the sublayer.
        dropout: share of the sublayer's output dropped in training.
        branch_norm: norm of the sublayer's output, before it is added; None for none.
    """

    def __init__(
        self,
        norm: nn.Module,
        pre_norm: bool,
        dropout: float,
        branch_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.branch_norm = branch_norm
        self.pre_norm = pre_norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.leave(x, sublayer(self.enter(x)))

    def enter(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x) if self.pre_norm else x

    def leave(self, x: Tensor, branch: Tensor) -> Tensor:
        """Add the sublayer's output to x, and normalize the sum of post-norm layers."""
        total = self.join(x, branch)
        return total if self.pre_norm else self.norm(total)

    def join(self, x: Tensor, branch: Tensor) -> Tensor:
        """Add the sublayer's output to x."""
        if self.branch_norm is not None:
            branch = self.branch_norm(branch)
        return x + self.dropout(branch)


class FeedForward(nn.Module):
    """Two linear layers with a nonlinearity between them (Vaswani et al. 2017, eq. 2).

    `swiglu` and `geglu` multiply one projection by the SiLU or GELU of another (Shazeer 2020, arXiv
    2002.05202), with a third matrix of the same size. `gelu_tanh` and `geglu_tanh` approximate the
    GELU by a tanh (Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2).

    Args:
        dim: width of input and output.
        hidden_dim: width between.
        activation: the nonlinearity.
        bias: add a bias to each matrix.
    """

    def __init__(
        self, dim: int, hidden_dim: int, activation: Activation, bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation
        self.function, self.gated = _FUNCTIONS[activation], activation in GATED
        gates = 2 if self.gated else 1
        self.inner = Linear(dim, gates * hidden_dim, bias=bias)
        self.outer = Linear(hidden_dim, dim, bias=bias)
        for matrix in self.inner.weight.chunk(gates):
            nn.init.xavier_uniform_(matrix.data)
        nn.init.xavier_uniform_(self.outer.weight)
        if bias:
            nn.init.zeros_(self.inner.bias)
            nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.inner(x)
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            return self.outer(self.function(gate) * value)
        return self.outer(self.function(hidden))
