"""Relative positions: learned or fixed terms by the distance of query and key."""

import copy
import math
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.checking import BadValue, Width
from seqattn.ops.precision import wide
from seqattn.positions.base import LayeredPosition, Position, Stack

Reach = Annotated[int, Ge(0), Le(65_536)]  # the largest distance in a table, in tokens


def distances(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Return i - j of queries at (T,) or (B, T) and keys at (S,) or (B, S): ([B,] T, S)."""
    return q_positions[..., :, None] - k_positions[..., None, :]


def table_rows(q_positions: Tensor, k_positions: Tensor, lowest: int, size: int) -> Tensor:
    """Return the table row for each query and key; row r is for distance i - j = lowest + r.

    Distances are clipped to the table of `size` rows. Shapes as in `distances`.
    """
    return (distances(q_positions, k_positions) - lowest).clamp(0, size - 1)


def reached(rows: Tensor, size: int) -> tuple[Tensor, slice]:
    """Return the slice of a large table that a small block needs, so that only it is computed.

    Args:
        rows: (..., T, S) from `table_rows`.
        size: rows of the table R.

    Returns:
        The rows counted from the start of the slice, and the slice. It is the full table if T
        queries and S keys at consecutive positions could reach all of it, and off the CPU,
        where reading positions would wait for a GPU or break a compiled graph.
    """
    small = ops.at_hand(rows) and rows.numel() > 0 and rows.shape[-2] + rows.shape[-1] < size
    if not small:
        return rows, slice(0, size)
    low, high = (int(end) for end in rows.aminmax())
    return rows - low, slice(low, high + 1)


def read(values: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values[..., t, rows[t, s]] for each pair.

    The gradient sums over all pairs of a row, in at least float32.

    Args:
        values: (B or 1, H, T or 1, R).
        rows: (T, S) or (B, T, S) from `table_rows`.
        dtype: of the result.

    Returns:
        (B or 1, H, T, S).
    """
    rows = rows[:, None] if rows.dim() == 3 else rows[None, None]  # (B or 1, 1, T, S)
    batch = values.shape[0] if rows.shape[0] == 1 else rows.shape[0]
    # not `take_along_dim`, which torch.compile recompiles for each length
    values = wide(values).expand(batch, -1, rows.shape[2], -1)
    return values.gather(3, rows.expand(batch, values.shape[1], -1, -1)).to(dtype)


def collect(weights: Tensor, rows: Tensor, size: int) -> Tensor:
    """Return the weight that each query gives to each row of a table: the transpose of `read`.

    Args:
        weights: (B, H, T, S).
        rows: as in `read`.
        size: rows of the table R.

    Returns:
        (B, H, T, R).
    """
    precise = wide(weights)
    total = precise.new_zeros(*weights.shape[:3], size)
    rows = rows[..., None, :, :].expand_as(weights)
    return total.scatter_add(3, rows, precise).to(weights.dtype)


class ShawPosition(LayeredPosition):
    """Relative position representations (Shaw et al. 2018, arXiv 1803.02155, eqs. 3 to 5).

    A key at distance j - i from its query counts as k_j + a^K_{clip(j-i)} in the scores, and its
    value as v_j + a^V_{clip(j-i)} in the context. Each layer has its own tables, which its heads
    share. Takes additional time T*S*H, or T*R*H*Dh for R = 2*max_distance + 1 rows, whichever is
    larger, without a tensor of T*S vectors. With `values`, the weights are materialized.

    Args:
        stack: the stack of layers.
        max_distance: clipping limit of distances, in tokens.
        values: also add relative positions to the values.
    """

    def __init__(self, stack: Stack, max_distance: Reach = 16, values: bool = False) -> None:
        super().__init__(stack, lambda _: ShawLayer(stack, max_distance, values))


class ShawLayer(Position):
    """One layer's part of `ShawPosition`; row r of a table is for i - j = r - max_distance."""

    def __init__(self, stack: Stack, max_distance: int, values: bool) -> None:
        super().__init__(stack)
        self.max_distance = max_distance
        self.hooks = frozenset({"score_term", "value_term"} if values else {"score_term"})
        shape = (2 * max_distance + 1, stack.head_dim)
        self.keys = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
        table = nn.init.xavier_uniform_(torch.empty(shape)) if values else None
        self.values = None if table is None else nn.Parameter(table)

    def _rows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return table_rows(q_positions, k_positions, -self.max_distance, len(self.keys))

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        table = self.keys * self.score_scale(q.shape[-1])
        rows = self._rows(q_positions, k_positions)
        return read(q @ table.T, rows, q.dtype)  # (B, H, T, R) -> (B, H, T, S)

    def value_term(
        self, weights: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        if self.values is None:
            return None
        rows = self._rows(q_positions, k_positions)
        return collect(weights, rows, len(self.values)) @ self.values  # (B, H, T, R) -> (.., Dh)


class HeadwisePosition(Position):
    """A scheme with values per head that are the same in every layer."""

    heads: list[int] | slice = slice(None)  # of a layer

    def at_layer(self, layer: int) -> Position:
        if not self.stack.kept_heads:
            return self
        part = copy.copy(self)
        part.heads = self.stack.heads(layer)
        return part


class ALiBiPosition(HeadwisePosition):
    """Attention with linear biases, -m_h * |i - j| (Press et al. 2022, arXiv 2108.12409, eq. 3).

    In a decoder, where j <= i, this is the paper's -m_h * (i - j); in an encoder it is symmetric.
    Nothing is learned, and the length is unlimited.
    """

    hooks = frozenset({"score_term"})

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        slopes = alibi_slopes(self.stack.num_heads, q)[self.heads, None, None]  # (H, 1, 1)
        distance = distances(q_positions, k_positions).abs()
        if distance.dim() == 2:
            distance = distance[None]  # (T, S) -> (1, T, S)
        return (distance[:, None] * -slopes).to(q.dtype)  # (B or 1, H, T, S)


def alibi_slopes(num_heads: int, like: Tensor) -> Tensor:
    """Return each head's slope m_h: (H,), in float32 or the wider type of `like`, on its device.

    Geometric from 2^(-8/H) if H is a power of 2; else those of the next lower power of 2, then
    every other one of the next higher, as in the authors' code (`get_slopes`).
    """
    power = 2 ** (num_heads.bit_length() - 1)
    kind = torch.promote_types(like.dtype, torch.float32)
    count = torch.arange(1, power + 1, device=like.device, dtype=kind)
    exponents, between = count * (8 / power), (2 * count - 1)[: num_heads - power] * (4 / power)
    return torch.exp2(-torch.cat((exponents, between)))


class T5Position(HeadwisePosition):
    """T5's bias, one table for all layers (Raffel et al. 2020, arXiv 1910.10683, sec. 2.1).

    Scores are not scaled by 1/sqrt(Dh), as in T5. An encoder's buckets distinguish keys before and
    after the query; a decoder uses all of them for earlier keys.

    Args:
        stack: the stack of layers.
        num_buckets: rows of the table, even.
        max_distance: distances from here on, in tokens, share the last bucket.

    Raises:
        UserError: the number of buckets is odd or too small, or the distance too small for it.
    """

    hooks = frozenset({"score_term"})
    buckets: Tensor

    def __init__(self, stack: Stack, num_buckets: Width = 32, max_distance: Reach = 128) -> None:
        super().__init__(stack)
        if num_buckets < 4 or num_buckets % 2:
            raise BadValue("num_buckets", f"must be even and at least 4, got {num_buckets}")
        if max_distance <= num_buckets // 2:
            reason = f"must be above half of num_buckets ({num_buckets // 2}), got {max_distance}"
            raise BadValue("max_distance", reason, "num_buckets")
        self.max_distance = max_distance
        self.table = nn.Embedding(num_buckets, stack.num_heads)
        nn.init.normal_(self.table.weight, std=stack.dim**-0.5)
        distance = torch.arange(-max_distance, max_distance + 1)
        buckets = t5_buckets(distance, stack.bidirectional, num_buckets, max_distance)
        self.register_buffer("buckets", buckets, persistent=False)

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        values = self.table(self.buckets).T[None, self.heads, None]  # (1, H, 1, 2*max_distance + 1)
        rows = table_rows(q_positions, k_positions, -self.max_distance, len(self.buckets))
        return read(values, rows, q.dtype)

    def score_scale(self, head_dim: int) -> float:
        return 1.0


def t5_buckets(
    distance: Tensor, bidirectional: bool, num_buckets: int, max_distance: int
) -> Tensor:
    """Return the bucket of each distance i - j, in the same shape.

    Half of the buckets cover one distance each, the others grow up to `max_distance`. If
    `bidirectional`, the upper half is for keys after their query; else those get bucket 0.
    """
    start = torch.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        start = (distance < 0) * num_buckets
        distance = distance.abs()
    distance = distance.clamp(min=0)
    num_exact = num_buckets // 2
    growth = (distance.clamp(min=1) / num_exact).log() / math.log(max_distance / num_exact)
    large = num_exact + (growth * (num_buckets - num_exact)).long()
    return start + torch.where(distance < num_exact, distance, large.clamp(max=num_buckets - 1))
