"""The position-wise feed-forward sublayer."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """Two matrices with a nonlinearity between them (Vaswani et al. 2017, eq. 2).

    `swiglu` gates one projection by the SiLU of another (Shazeer 2020, arXiv 2002.05202), which
    takes a third matrix of the same size.

    Args:
        dim: width of input and output.
        hidden_dim: width between.
        activation: relu, gelu or swiglu.
    """

    def __init__(self, dim: int, hidden_dim: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        gates = 2 if activation == "swiglu" else 1
        self.inner = nn.Linear(dim, gates * hidden_dim)
        self.outer = nn.Linear(hidden_dim, dim)
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
        out: Tensor = self.outer(hidden)
        return out
