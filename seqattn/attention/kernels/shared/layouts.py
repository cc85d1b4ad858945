"""Layouts that split a sequence into blocks of queries with the keys they see."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 32  # smaller blocks cost more in overhead than they save


class Layout:
    """Base of layouts, which split a sequence (B, X, N, M) into P blocks of queries and keys.

    By default blocks of `size` tokens, each with only its own keys.
    """

    size: int

    def queries(self, x: Tensor) -> Tensor:
        """Split into queries, (B, X, N, M) -> (B*P, X, c, M), each token in one block."""
        if x.shape[2] == self.size:
            return x
        blocks = x.unflatten(2, (-1, self.size))  # (B, X, N, M) -> (B, X, P, c, M)
        return blocks.transpose(1, 2).flatten(0, 1)  # -> (B*P, X, c, M)

    def keys(self, x: Tensor) -> Tensor:
        """Split into keys, (B, X, N, M) -> (B*P, X, s, M), zeros where there is no token."""
        return self.queries(x)

    def back(self, x: Tensor, rows: int) -> Tensor:
        """Undo `queries` for a batch of `rows`: (B*P, X, c, M) -> (B, X, N, M)."""
        if len(x) == rows:
            return x
        return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


@dataclass(frozen=True)
class Band(Layout):
    """Blocks of `size` queries; keys are the first tokens, the same block and those around it."""

    size: int  # tokens of a block c; divides the length
    keys_before: int = 0  # keys before the block, a multiple of `size`
    keys_after: int = 0  # keys after it, a multiple of `size`
    first: int = 0  # initial keys that every block also has
    compact: bool = False  # copy overlapping keys, for products that are not fused

    @classmethod
    def cover(cls, length: int, keys_before: int, keys_after: int, first: int) -> "Band":
        """Return blocks of half the reach that contain the keys of each query."""
        size = max(SMALLEST, (max(keys_before, keys_after) + 1) // 2)
        ahead, behind = -(-keys_before // size) * size, -(-keys_after // size) * size
        if length <= size + ahead + behind:
            return cls(length, first=first)
        return cls(size, ahead, behind, first)

    def distance(self, device: torch.device) -> Tensor:
        """Return the distance from each query of a block to each key of its band: (c, W)."""
        width = self.keys_before + self.size + self.keys_after
        query = torch.arange(self.keys_before, self.keys_before + self.size, device=device)
        return query[:, None] - torch.arange(width, device=device)

    def keys(self, x: Tensor) -> Tensor:
        if self.keys_before == self.keys_after == 0:
            band = self.queries(x)
        else:
            width = self.keys_before + self.size + self.keys_after
            padded = F.pad(x, (0, 0, self.keys_before, self.keys_after))
            band = Overlapping.apply(padded, width, self.size)  # type: ignore[no-untyped-call]
            band = band.contiguous() if self.compact else band
        if not self.first:
            return band
        count = x.shape[2] // self.size
        early = x[:, None, :, : self.first].expand(-1, count, -1, -1, -1).flatten(0, 1)
        return torch.cat((early, band), dim=2)


class Overlapping(torch.autograd.Function):
    """Windows of `width` every `step` keys, as strided views if possible.

    PyTorch's gradient of overlapping windows adds key by key; this one adds complete blocks.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, width: int, step: int) -> Tensor:
        """Return windows of x (B, G, S, Dh): (B * blocks, G, width, Dh).

        `step` divides `width` and S.
        """
        ctx.shape, ctx.step = x.shape, step
        windows = x.unfold(2, width, step)  # (B, G, blocks, Dh, width)
        return windows.permute(0, 2, 1, 4, 3).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        rows, groups, length, head_dim = ctx.shape
        pieces = gradients[0].unflatten(0, (rows, -1)).unflatten(3, (-1, ctx.step))
        blocks = pieces.shape[1]  # (B, blocks, G, width / step, step, Dh)
        total = gradients[0].new_zeros(rows, length // ctx.step, ctx.step, groups, head_dim)
        by_block = total.transpose(2, 3)  # (B, S / step, G, step, Dh)
        for offset in range(pieces.shape[3]):
            by_block[:, offset : offset + blocks] += pieces[:, :, :, offset]
        return total.flatten(1, 2).transpose(1, 2), None, None


@dataclass(frozen=True)
class Columns(Layout):
    """Blocks of the tokens that are multiples of `stride` apart, in order."""

    stride: int

    def queries(self, x: Tensor) -> Tensor:
        columns = x.unflatten(2, (-1, self.stride))  # (B, X, N, M) -> (B, X, c, P, M)
        return columns.permute(0, 3, 1, 2, 4).flatten(0, 1)  # -> (B*P, X, c, M)

    def back(self, x: Tensor, rows: int) -> Tensor:
        return x.unflatten(0, (rows, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)


@dataclass(frozen=True)
class Summaries(Layout):
    """One block of all queries; keys are the last `count` tokens of every block of `size`."""

    size: int
    count: int

    def queries(self, x: Tensor) -> Tensor:
        return x

    def keys(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.size))[:, :, :, -self.count :].flatten(2, 3)

    def back(self, x: Tensor, rows: int) -> Tensor:
        return x


@dataclass(frozen=True)
class Table(Layout):
    """Blocks of `size` queries; keys are the blocks listed in a table."""

    size: int
    blocks: Tensor  # (B, P, k) the key blocks of each query block; P for none

    def keys(self, x: Tensor) -> Tensor:
        rows, heads, _, width = x.shape
        # a block of zeros for none
        blocks = F.pad(x.unflatten(2, (-1, self.size)), (0, 0, 0, 0, 0, 1))
        starts = torch.arange(rows * heads, device=x.device).view(rows, 1, heads, 1)
        index = starts * blocks.shape[2] + self.blocks[:, :, None]  # (B, P, X, k)
        selected = blocks.flatten(3).flatten(0, 2).index_select(0, index.flatten())
        return selected.view(-1, heads, self.blocks.shape[2] * self.size, width)
