"""BigBird: a window, global blocks and random blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities
from seqattn.attention.cache import Cache
from seqattn.attention.kernels.parts.fused import fused_attention
from seqattn.attention.kernels.parts.sparse import Arranged, SparseKernel
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class BigBirdKernel(SparseKernel):
    """Block-sparse attention (Zaheer et al. 2020, arXiv 2007.14062, section 2 and appendix D).

    Tokens stand in blocks by their real positions. A query block sees the blocks of its window,
    the global blocks, which are the first ones and themselves see everything, and random blocks
    drawn from the rest of the sentence without repetition (the internal-transformer form, ITC).
    The draw is a hash of the seed and the two blocks: the same for every head and call, in any
    batch and under any padding.

    Blocks are gathered: with w + g + r = k blocks of b tokens, time n*k*b*D and memory n*k*D.
    Bidirectional only: no causal form, no cross-attention, and so no cache.

    Args:
        block_size: b, tokens.
        window_blocks: w, the query's own block and its neighbours; of an even number, one more
            stands before than after.
        global_blocks: g.
        random_blocks: r, at most; fewer where a sentence has no more.
        seed: of the random blocks.

    Raises:
        UserError: where an option is out of its range.
    """

    abilities = Abilities(
        bidirectional=True,
        causal=False,
        cross=False,
        incremental=False,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
    )

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        block_size: int = 64,
        window_blocks: int = 3,
        global_blocks: int = 1,
        random_blocks: int = 3,
        seed: int = 0,
    ) -> None:
        least = {"block_size": 1, "window_blocks": 1, "global_blocks": 0, "random_blocks": 0}
        given = (block_size, window_blocks, global_blocks, random_blocks)
        for (name, low), value in zip(least.items(), given):
            if value < low:
                raise UserError(f"attention.kernel.{name} must be at least {low}, got {value}")
        super().__init__(num_heads, num_kv_heads, head_dim, dropout, block_size)
        self.window_blocks = window_blocks
        self.global_blocks = global_blocks
        self.random_blocks = random_blocks
        self.seed = seed

    def make_cache(self, beams: int) -> Cache:
        raise UserError("BigBirdKernel cannot decode; it fits attention@encoder_attention")

    def table(self, lengths: Tensor, count: int) -> Tensor:
        """The key blocks of each query block, each once; `count` stands for none.

        Args:
            lengths: (B,) real tokens of each sentence.
            count: blocks of the padded length.

        Returns:
            (B, count, g + w + r); rows of the global blocks themselves mean nothing.
        """
        blocks = torch.arange(count, device=lengths.device)
        first = torch.arange(min(self.global_blocks, count), device=lengths.device)
        before = self.window_blocks // 2
        offsets = torch.arange(self.window_blocks, device=lengths.device) - before
        window = blocks[:, None] + offsets
        window = window.masked_fill((window < self.global_blocks) | (window >= count), count)
        rows = lengths.shape[0]
        fixed = torch.cat((first.expand(count, -1), window), dim=1).expand(rows, -1, -1)
        distance = blocks - blocks[:, None]
        free = (distance < -before) | (distance >= self.window_blocks - before)
        free = free & (blocks >= self.global_blocks)
        inside = blocks * self.unit < lengths[:, None]  # (B, count)
        order = _hash(self.seed, blocks[:, None], blocks)
        order = torch.where(free & inside[:, None], order, -1)  # (B, count, count)
        drawn = order.topk(min(self.random_blocks, count), dim=2)
        return torch.cat((fixed, drawn.indices.masked_fill(drawn.values < 0, count)), dim=2)

    def pattern(self, mask: Mask) -> Tensor:
        real, keys = mask.real, mask.key_positions
        lengths = torch.full((1,), mask.keys, device=keys.device)
        lengths = lengths if real is None else real.sum(dim=1)
        count = -(-mask.keys // self.unit)
        near = F.one_hot(self.table(lengths, count), count + 1).any(dim=2)[..., :count]
        near[:, : self.global_blocks] = True
        rows = torch.arange(lengths.shape[0], device=keys.device)[:, None, None]
        i, j = mask.query_positions // self.unit, keys // self.unit
        return near[rows, i[..., :, None], j[..., None, :]][:, None]

    def _pieces(self, arranged: Arranged, position: Position) -> Tensor:
        first = min(self.global_blocks * self.unit, arranged.query.shape[2])
        parts = []
        if first:
            slots = torch.arange(arranged.query.shape[2], device=arranged.query.device)
            extra = None if arranged.extra is None else arranged.extra[:, :, :first]
            mask = Mask(slots[:first], slots, arranged.real, extra=extra)
            q = arranged.query[:, :, :first]
            parts.append(self._fused(q, arranged.keys, arranged.values, mask, position))
        if first < arranged.query.shape[2]:
            parts.append(self._rest(arranged, first, position))
        return torch.cat(parts, dim=2)

    def _rest(self, arranged: Arranged, first: int, position: Position) -> Tensor:
        """The context of the queries from slot `first` on, which are in no global block."""
        rows, _, length, _ = arranged.query.shape
        count, skipped = length // self.unit, first // self.unit
        table = self.table(arranged.real.sum(dim=1), count)[:, skipped:]  # (B, P, k)
        slots = torch.arange(length, device=table.device)
        i = slots[first:].unflatten(0, (-1, self.unit)).expand(rows, -1, -1)  # (B, P, b)
        j = self._gathered(slots.expand(rows, 1, -1)[..., None], table)[:, 0, :, 0]  # (B*P, k*b)
        real = self._gathered(arranged.real[:, None, :, None], table)[:, 0, :, 0]
        extra = arranged.extra_at(i, j.unflatten(0, (rows, -1)))
        mask = Mask(i.flatten(0, 1), j, real, extra=extra)
        q = arranged.query[:, :, first:].unflatten(2, (-1, self.unit))
        q = q.transpose(1, 2).flatten(0, 1)  # (B, H, P, b, Dh) -> (B*P, H, b, Dh)
        keys, values = (self._gathered(x, table) for x in (arranged.keys, arranged.values))
        context = self._fused(q, keys, values, mask, position)
        return context.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)

    def _gathered(self, x: Tensor, table: Tensor) -> Tensor:
        """The blocks of x (B, X, N, M) that `table` (B, P, k) names: (B*P, X, k*b, M)."""
        rows, heads, _, width = x.shape
        blocks = F.pad(x.unflatten(2, (-1, self.unit)), (0, 0, 0, 0, 0, 1))  # one of zeros for none
        starts = torch.arange(rows * heads, device=x.device).view(rows, 1, heads, 1)
        index = starts * blocks.shape[2] + table[:, :, None]  # (B, P, X, k)
        found = blocks.flatten(3).flatten(0, 2).index_select(0, index.flatten())
        return found.view(-1, heads, table.shape[2] * self.unit, width)

    def _fused(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """The context of q (B, H, T, Dh), unobserved: weights are written out beside it."""
        if "value_term" in position.hooks:
            return self._weighted(self.weights(q, keys, mask, position), values, mask, position)
        bias = position.score_term(q, keys, mask.query_positions, mask.key_positions)
        visible = mask.visible
        assert visible is not None
        bias = visible.keys if bias is None else bias.masked_fill(~visible.keys, -torch.inf)
        context = fused_attention(
            q,
            keys,
            values,
            bias,
            dropout=self.dropout if self.training else 0.0,
            scale=position.score_scale(self.head_dim),
        )
        return context if visible.alone is None else context.masked_fill(visible.alone, 0.0)


def _hash(seed: int, i: Tensor, j: Tensor) -> Tensor:
    """A number per pair of blocks, as if drawn at random, no two of a row alike; 0 to 2**52."""
    x = (i + 1) * 73856093 ^ (j + 1) * 19349663 ^ ((seed + 1) * 83492791 % 2**32)
    for _ in range(3):
        x = ((x ^ x >> 16) & 0xFFFFFFFF) * 0x45D9F3B & 0xFFFFFFFF
    return (x << 20) + j
