"""Queries cut into blocks, each with its band of keys, for kernels that look near."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 32  # smaller blocks cost more in calls than they save in keys


class Overlapping(torch.autograd.Function):
    """Windows of `width` every `step` keys, strided views where that can be.

    PyTorch's own gradient of overlapping windows adds key by key; this one adds whole blocks.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, width: int, step: int) -> Tensor:
        """x (B, G, S, Dh) -> (B * blocks, G, width, Dh); `step` divides `width` and S."""
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
class Bands:
    """How a sequence is cut: `blocks` of `size` queries, each seeing `margin`s around itself.

    Args:
        length: tokens n.
        size: queries of a block c.
        before: keys before the block, a multiple of `size`.
        after: keys after it, a multiple of `size`.
    """

    length: int
    size: int
    before: int
    after: int

    @classmethod
    def cover(cls, length: int, before: int, after: int) -> "Bands":
        """Blocks of half the reach, in which each query finds so many keys before and after it."""
        size = max(SMALLEST, (max(before, after) + 1) // 2)
        first, last = -(-before // size) * size, -(-after // size) * size
        if length <= size + first + last:
            return cls.whole(length)
        return cls(length, size, first, last)

    @classmethod
    def whole(cls, length: int) -> "Bands":
        """One block."""
        return cls(length, length, 0, 0)

    @property
    def blocks(self) -> int:
        """How many blocks cover the sequence."""
        return -(-self.length // self.size)

    @property
    def width(self) -> int:
        """Keys of a block's band W."""
        return self.before + self.size + self.after

    def query_places(self, device: torch.device) -> Tensor:
        """(blocks, c), where each query stands; the last ones may stand past the end."""
        return torch.arange(self.blocks * self.size, device=device).view(self.blocks, self.size)

    def key_places(self, device: torch.device) -> Tensor:
        """(blocks, W), where each key stands; below 0 and past the end there is none."""
        start = torch.arange(self.blocks, device=device) * self.size - self.before
        return start[:, None] + torch.arange(self.width, device=device)

    def queries(self, x: Tensor) -> Tensor:
        """(B, H, n, ...) -> (B * blocks, H, c, ...), zeros past the end."""
        spare = self.blocks * self.size - self.length
        if spare:
            x = F.pad(x, (0, 0, 0, spare))
        x = x.unflatten(2, (self.blocks, self.size))  # (B, H, blocks, c, ...)
        return x.transpose(1, 2).flatten(0, 1)

    def keys(self, x: Tensor, first: int) -> Tensor:
        """The first keys and a band: (B, G, n, Dh) -> (B * blocks, G, first + W, Dh).

        Zeros where the band has no key.
        """
        band = x
        if self.blocks > 1:
            spare = self.blocks * self.size - self.length
            padded = F.pad(x, (0, 0, self.before, spare + self.after))
            band = Overlapping.apply(padded, self.width, self.size)  # type: ignore[no-untyped-call]
        if not first:
            return band
        early = x[:, None, :, :first].expand(-1, self.blocks, -1, -1, -1).flatten(0, 1)
        return torch.cat((early, band), dim=2)

    def join(self, x: Tensor) -> Tensor:
        """Undoes `queries`: (B * blocks, H, c, ...) -> (B, H, n, ...)."""
        x = x.unflatten(0, (-1, self.blocks)).transpose(1, 2)  # (B, H, blocks, c, ...)
        return x.flatten(2, 3)[:, :, : self.length]
