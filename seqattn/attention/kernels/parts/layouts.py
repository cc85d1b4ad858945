"""How a sequence is cut into pieces, and how heads are shared out among patterns."""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Layout(Protocol):
    """Cuts a sequence (B, X, N, M) into P pieces so that a set's queries and keys meet in one."""

    def queries(self, x: Tensor) -> Tensor:
        """(B, X, N, M) -> (B*P, X, c, M), every token in one piece."""

    def keys(self, x: Tensor) -> Tensor:
        """(B, X, N, M) -> (B*P, X, s, M), zeros where there is no token."""

    def back(self, x: Tensor, rows: int) -> Tensor:
        """Undoes `queries` for a batch of `rows`: (B*P, X, c, M) -> (B, X, N, M)."""


@dataclass(frozen=True)
class Blocks:
    """Queries in blocks of `size`; keys of the same block and those `before` and `after` it."""

    size: int
    before: int = 0
    after: int = 0

    def queries(self, x: Tensor) -> Tensor:
        blocks = x.unflatten(2, (-1, self.size))  # (B, X, N, M) -> (B, X, P, c, M)
        return blocks.transpose(1, 2).flatten(0, 1)  # -> (B*P, X, c, M)

    def keys(self, x: Tensor) -> Tensor:
        blocks = x.unflatten(2, (-1, self.size))
        count = blocks.shape[2]
        wide = F.pad(blocks, (0, 0, 0, 0, self.before, self.after))
        shifts = range(self.before + self.after + 1)
        near = torch.cat([wide[:, :, shift : shift + count] for shift in shifts], dim=3)
        return near.transpose(1, 2).flatten(0, 1)  # (B, X, P, s, M) -> (B*P, X, s, M)

    def back(self, x: Tensor, rows: int) -> Tensor:
        return x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


@dataclass(frozen=True)
class Columns:
    """Tokens that stand a multiple of `stride` apart, in order."""

    stride: int

    def queries(self, x: Tensor) -> Tensor:
        columns = x.unflatten(2, (-1, self.stride))  # (B, X, N, M) -> (B, X, c, P, M)
        return columns.permute(0, 3, 1, 2, 4).flatten(0, 1)  # -> (B*P, X, c, M)

    def keys(self, x: Tensor) -> Tensor:
        return self.queries(x)

    def back(self, x: Tensor, rows: int) -> Tensor:
        return x.unflatten(0, (rows, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)


@dataclass(frozen=True)
class Summaries:
    """All queries in one piece; keys are the last `count` tokens of every block of `size`."""

    size: int
    count: int

    def queries(self, x: Tensor) -> Tensor:
        return x

    def keys(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.size))[:, :, :, -self.count :].flatten(2, 3)

    def back(self, x: Tensor, rows: int) -> Tensor:
        return x


@dataclass(frozen=True)
class Shares:
    """Heads shared out equally among patterns, which alternate from head to head.

    Where the heads of a group do not divide by the patterns, they alternate from group to group.

    Args:
        count: how many patterns; divides H.
        num_heads: query heads H.
        num_kv_heads: key and value heads G.
    """

    count: int
    num_heads: int
    num_kv_heads: int

    @property
    def _run(self) -> int:
        """Neighbouring heads of the same pattern."""
        size = self.num_heads // self.num_kv_heads
        return size if size % self.count else 1

    def of_heads(self, device: torch.device) -> Tensor:
        """(H,) the number of each head's pattern."""
        return torch.arange(self.num_heads, device=device) // self._run % self.count

    def heads(self, x: Tensor, number: int) -> Tensor:
        """The heads of pattern `number`: (B, H, ...) -> (B, H/count, ...); one head stays one."""
        if self.count == 1 or x.shape[1] == 1:
            return x
        return x.unflatten(1, (-1, self.count, self._run))[:, :, number].flatten(1, 2)

    def groups(self, x: Tensor, number: int) -> Tensor:
        """The key or value heads that those query heads use, of x (B, G, ...)."""
        if self.num_heads // self.num_kv_heads % self.count == 0:
            return x
        return x[:, number :: self.count]

    def together(self, parts: list[Tensor]) -> Tensor:
        """All heads in order from each pattern's: (B, H/count, ...) -> (B, H, ...)."""
        if self.count == 1:
            return parts[0]
        runs = [part.unflatten(1, (-1, self._run)) for part in parts]
        return torch.stack(runs, dim=2).flatten(1, 3)
