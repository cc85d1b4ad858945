"""Token embeddings."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.layers.dropout import Dropout
from seqattn.positions.base import Position


class Embedding(nn.Module):
    """Ids to vectors scaled by sqrt(D), plus positions, dropout (Vaswani et al. 2017, section 3.4).

    Args:
        table: the (V, D) table, which two embeddings and the output may share.
        position: the stack's position scheme.
        dropout: share dropped in training.
    """

    def __init__(self, table: nn.Embedding, position: Position, dropout: float) -> None:
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(table.embedding_dim)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Ids (B, T) at positions (T,) or (B, T) -> (B, T, D)."""
        x = F.embedding(ids, self.table.weight) * self.scale
        out: Tensor = self.dropout(self.position.embed(x, positions))
        return out


def make_table(size: int, dim: int) -> nn.Embedding:
    """A (size, dim) table drawn from N(0, 1/dim), so that scaled rows and tied logits are O(1)."""
    table = nn.Embedding(size, dim)
    nn.init.normal_(table.weight, std=dim**-0.5)
    return table
