"""BigBird: a window, global blocks and random blocks."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.kernels.base import HeadShape, Kernel
from seqattn.attention.kernels.shared.blockwise import BlockwiseKernel, Tokens
from seqattn.attention.kernels.shared.layouts import Table
from seqattn.attention.masks import Mask
from seqattn.checking import Count, CountOrNone, Seed
from seqattn.positions.base import Position


class BigBirdKernel(BlockwiseKernel):
    """Block-sparse attention (Zaheer et al. 2020, arXiv 2007.14062, section 2 and appendix D).

    Real positions are split into blocks. A query block sees the blocks of its window, the global
    blocks, which are the first ones and see everything, and random blocks drawn without repetition
    from the rest of the sentence (internal transformer construction, ITC). The draw is a hash of
    the seed and the two blocks: the same for every head and call, whatever the batch and padding.

    Blocks are gathered: with w + g + r = k blocks of b tokens, time n*k*b*D and memory n*k*D.
    Bidirectional only: no causal form, no cross-attention, and so no cache.

    Args:
        block_size: b, tokens.
        window_blocks: w, the query's own block and its neighbors; if even, with one more before
            than after.
        global_blocks: g.
        random_blocks: maximum r; fewer if a sentence is too short.
        seed: seed of the random blocks.
    """

    abilities = replace(BlockwiseKernel.abilities, causal=False, incremental=False, crop=False)

    def __init__(
        self,
        shape: HeadShape,
        block_size: Count = 64,
        window_blocks: Count = 3,
        global_blocks: CountOrNone = 1,
        random_blocks: CountOrNone = 3,
        seed: Seed = 0,
    ) -> None:
        super().__init__(shape)
        self.block_size = block_size
        self.window_blocks = window_blocks
        self.global_blocks = global_blocks
        self.random_blocks = random_blocks
        self.seed = seed
        self.dense_up_to = block_size
        beside = (window_blocks + 1) // 2  # a block sees at the end of a text, itself included
        self.sees_all_up_to = block_size * (global_blocks + beside + random_blocks)

    make_cache = Kernel.make_cache

    def table(self, lengths: Tensor, count: int) -> Tensor:
        """Return the distinct key blocks of each query block, padded with the value `count`.

        Args:
            lengths: (B,) real tokens of each sentence.
            count: blocks in the padded length.

        Returns:
            (B, count, g + w + r), or fewer columns if `count` is small; rows of the global blocks
            are meaningless.
        """
        blocks = torch.arange(count, device=lengths.device)
        first = torch.arange(min(self.global_blocks, count), device=lengths.device)
        back = self.window_blocks // 2
        ahead = self.window_blocks - back
        # no block is further away than the number of blocks
        offsets = torch.arange(-min(back, count), min(ahead, count), device=lengths.device)
        window = blocks[:, None] + offsets
        window = window.masked_fill((window < self.global_blocks) | (window >= count), count)
        rows = lengths.shape[0]
        fixed = torch.cat((first.expand(count, -1), window), dim=1).expand(rows, -1, -1)
        distance = blocks - blocks[:, None]
        free = (distance < -back) | (distance >= ahead)
        free = free & (blocks >= self.global_blocks)
        inside = blocks * self.block_size < lengths[:, None]  # (B, count)
        order = _hash(self.seed, blocks[:, None], blocks)
        order = torch.where(free & inside[:, None], order, -1)  # (B, count, count)
        sample = order.topk(min(self.random_blocks, count), dim=2)
        return torch.cat((fixed, sample.indices.masked_fill(sample.values < 0, count)), dim=2)

    def pattern(self, mask: Mask) -> Tensor:
        keys, count = mask.key_positions, -(-mask.keys // self.block_size)
        real = keys.new_ones(1, mask.keys) if mask.real is None else mask.real
        near = F.one_hot(self.table(real.sum(dim=1), count), count + 1).any(dim=2)[..., :count]
        near[:, : self.global_blocks] = True
        rows = torch.arange(len(near), device=keys.device)[:, None, None]
        i, j = mask.query_positions // self.block_size, keys // self.block_size
        return near[rows, i[..., :, None], j[..., None, :]][:, None]

    def _unit(self, length: int, causal: bool) -> int:
        return self.block_size

    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        rows, _, length, _ = tokens.query.shape
        lengths = torch.full((rows,), length, device=tokens.query.device)
        lengths = lengths if tokens.real is None else tokens.real.sum(dim=1)
        layout = Table(self.block_size, self.table(lengths, length // self.block_size))
        first = min(self.global_blocks * self.block_size, length)
        return self._beside(tokens, layout, first, position)


def _hash(seed: Seed, i: Tensor, j: Tensor) -> Tensor:
    """Return a pseudo-random number per pair of blocks, distinct within a row; 0 to 2**52."""
    x = (i + 1) * 73856093 ^ (j + 1) * 19349663 ^ ((seed + 1) * 83492791 % 2**32)
    for _ in range(3):
        x = ((x ^ x >> 16) & 0xFFFFFFFF) * 0x45D9F3B & 0xFFFFFFFF
    return (x << 20) + j
