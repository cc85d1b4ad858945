"""Token embeddings."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.layers import Dropout
from seqattn.positions.base import Position

Sharing = Literal["all", "target", "none"]
"""Which of source, target and output are one table: all, target and output, or none."""


class Embedding(nn.Module):
    """Ids to vectors scaled by sqrt(D), plus positions, dropout (Vaswani et al. 2017, section 3.4).

    Args:
        table: the (V, D) table, which two embeddings and the output may share.
        dropout: of the model.
        position: the stack's scheme; None for recurrence, which itself says where a token stands.
        word_dropout: share of tokens whose whole vector is 0 in training, the others scaled by
            1/(1-p) (Sennrich et al. 2016, arXiv 1606.02891); where they stand is said of all.
    """

    def __init__(
        self,
        table: nn.Embedding,
        dropout: nn.Module,
        position: Position | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = dropout
        self.word_dropout = Dropout(word_dropout)
        self.scale = math.sqrt(table.embedding_dim)

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, factors: Tensor | None = None
    ) -> Tensor:
        """Ids (B, T) at positions (T,) or (B, T) -> (B, T, D).

        `factors` (B, T, D) are what its dropout draws, where they are drawn already.
        """
        x = F.embedding(ids, self.table.weight) * self.scale
        if self.training and self.word_dropout.p:
            x = x * self.word_dropout(torch.ones_like(x[..., :1]))
        if self.position is not None and positions is not None:
            x = self.position.embed(x, positions)
        return self.dropout(x) if factors is None else x * factors


def make_table(size: int, dim: int) -> nn.Embedding:
    """A (size, dim) table drawn from N(0, 1/dim), so that scaled rows and tied logits are O(1)."""
    table = nn.Embedding(size, dim)
    nn.init.normal_(table.weight, std=dim**-0.5)
    return table


def make_tables(
    sharing: Sharing, source: tuple[int, int], target: tuple[int, int]
) -> tuple[nn.Embedding, nn.Embedding, Tensor | None]:
    """The tables of a model's two sides, and the one that its output shares, None for none.

    Args:
        sharing: which are one table.
        source: (size, dim) of the source's table.
        target: (size, dim) of the target's.
    """
    target_table = make_table(*target)
    source_table = target_table if sharing == "all" else make_table(*source)
    return source_table, target_table, None if sharing == "none" else target_table.weight
