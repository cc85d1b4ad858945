"""T5's relative bias: a learned number per head and logarithmic bucket of distance."""

import math

import torch
from torch import Tensor, nn

from seqattn.checking import BadValue, Width, checked
from seqattn.positions.base import Position, Stack
from seqattn.positions.distances import Reach, read, table_rows


@checked
class T5Position(Position):
    """The bias of T5, one table for all layers (Raffel et al. 2020, arXiv 1910.10683, sec. 2.1).

    Scores are not scaled by 1/sqrt(Dh), as in T5. An encoder's buckets tell before from after; a
    decoder has all of them for what came before.

    Args:
        stack: what it serves.
        num_buckets: rows of the table, even.
        max_distance: from here on, in tokens, all distances share the last bucket.

    Raises:
        UserError: for an odd or too small number of buckets, or too small a distance for them.
    """

    hooks = frozenset({"score_term"})
    buckets: Tensor

    def __init__(self, stack: Stack, num_buckets: Width = 32, max_distance: Reach = 128) -> None:
        super().__init__(stack)
        if num_buckets < 4 or num_buckets % 2:
            raise BadValue("num_buckets", f"must be even and at least 4, got {num_buckets}")
        if max_distance <= num_buckets // 2:
            half = f"half of num_buckets ({num_buckets // 2})"
            raise BadValue("max_distance", f"must be above {half}, got {max_distance}")
        self.max_distance = max_distance
        self.table = nn.Embedding(num_buckets, stack.num_heads)
        nn.init.normal_(self.table.weight, std=stack.dim**-0.5)
        distance = torch.arange(-max_distance, max_distance + 1)
        buckets = t5_buckets(distance, stack.bidirectional, num_buckets, max_distance)
        self.register_buffer("buckets", buckets, persistent=False)

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        values = self.table(self.buckets).T[None, :, None]  # (1, H, 1, 2*max_distance + 1)
        rows = table_rows(q_positions, k_positions, -self.max_distance, len(self.buckets))
        return read(values, rows, q.dtype)

    def score_scale(self, head_dim: int) -> float:
        return 1.0


def t5_buckets(
    distance: Tensor, bidirectional: bool, num_buckets: int, max_distance: int
) -> Tensor:
    """The bucket of each distance i - j, the same shape.

    Half of the buckets are one distance each, the other half grow to `max_distance`. Where
    `bidirectional`, the upper half of all is for keys after their query; else those get bucket 0.
    """
    start = torch.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        start = (distance < 0) * num_buckets
        distance = distance.abs()
    distance = distance.clamp(min=0)
    exact = num_buckets // 2
    growth = (distance.clamp(min=1) / exact).log() / math.log(max_distance / exact)
    large = exact + (growth * (num_buckets - exact)).long()
    return start + torch.where(distance < exact, distance, large.clamp(max=num_buckets - 1))
