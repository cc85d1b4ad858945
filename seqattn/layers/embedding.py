"""Token embeddings."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.layers import Dropout
from seqattn.positions.base import Position
from seqattn.tokens import RESERVED

Sharing = Literal["all", "target", "inputs", "none"]
"""Which of source, target and output share a table: all, target and output, source and target, or
none."""


class Embedding(nn.Module):
    """Embeddings scaled by sqrt(D), positions and dropout (Vaswani et al. 2017, section 3.4).

    Args:
        table: the (V, D) table, which other embeddings and the output may share.
        dropout: the model's dropout module.
        position: the stack's scheme; None for recurrent models, which need none.
        word_dropout: share of tokens whose complete vector is zeroed in training, the others scaled
            by 1/(1-p) (Sennrich et al. 2016, arXiv 1606.02891); positions are added to all.
        scale: factor on the table's vectors; None for sqrt(D).
        norm: norm of the sum of vectors and positions (as in BART, Lewis et al. 2020, arXiv
            1910.13461); None for none.
    """

    cutoff: float = 0.0
    """Share of words whose vector is zeroed in training, in the second half of a batch alone, which
    repeats the first (SimCut, Gao et al. 2022, arXiv 2206.02368); others are not scaled, and
    positions are added to all."""

    def __init__(
        self,
        table: nn.Embedding,
        dropout: nn.Module,
        position: Position | None = None,
        word_dropout: float = 0.0,
        scale: float | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = dropout
        self.word_dropout = Dropout(word_dropout)
        self.scale = math.sqrt(table.embedding_dim) if scale is None else scale
        self.norm = norm

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, factors: Tensor | None = None
    ) -> Tensor:
        """Embed ids (B, T) at positions (T,) or (B, T): (B, T, D).

        `factors` (B, T, D) are the dropout factors, if already drawn.
        """
        x = F.embedding(ids, self.table.weight) * self.scale
        if self.training and self.word_dropout.p:
            x = x * self.word_dropout(torch.ones_like(x[..., :1]))
        if self.training and self.cutoff:
            is_cut = (torch.rand(ids.shape, device=ids.device) < self.cutoff) & (ids >= RESERVED)
            is_cut[: len(ids) // 2] = False
            x = x.masked_fill(is_cut[..., None], 0.0)
        if self.position is not None and positions is not None:
            x = self.position.embed(x, positions)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x) if factors is None else x * factors


def make_table(size: int, dim: int) -> nn.Embedding:
    """Create a (size, dim) table from N(0, 1/dim), so that scaled rows and tied logits are O(1)."""
    table = nn.Embedding(size, dim)
    nn.init.normal_(table.weight, std=dim**-0.5)
    return table


def make_tables(
    sharing: Sharing, source: tuple[int, int], target: tuple[int, int]
) -> tuple[nn.Embedding, nn.Embedding, Tensor | None]:
    """Create the source and target tables, and the weight shared with the output, or None.

    Args:
        sharing: which of them share a table.
        source: (size, dim) of the source table.
        target: (size, dim) of the target table.
    """
    target_table = make_table(*target)
    source_table = target_table if sharing in ("all", "inputs") else make_table(*source)
    tied = target_table.weight if sharing in ("all", "target") else None
    return source_table, target_table, tied
