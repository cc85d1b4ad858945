"""Factorized attention: a few index sets, each dense in a layout of its own, merged exactly."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import HeadShape
from seqattn.attention.kernels.parts.blockwise import BlockwiseKernel
from seqattn.attention.kernels.parts.layouts import Layout
from seqattn.attention.kernels.parts.merging import Partial, end_to_end, merged, powers_
from seqattn.attention.kernels.parts.ordering import Piece, Tokens
from seqattn.attention.kernels.softmax import per_group
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class FactorizedKernel(BlockwiseKernel):
    """Softmax over a union of index sets (Child et al. 2019, arXiv 1904.10509, section 4).

    Every set is dense in a layout of its own; a key in two sets of a head counts in the first.

    Args:
        unit: tokens that pieces come in multiples of, at least 1.
        patterns: the numbers of the sets that each equal share of the heads attends to.
    """

    def __init__(self, shape: HeadShape, unit: int, patterns: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(shape)
        self.unit = unit
        if shape.num_heads % len(patterns):
            raise UserError(
                f"attention.num_heads must be even for heads of two patterns, got {shape.num_heads}"
            )
        self.patterns = patterns
        self.shares = Shares(len(patterns), shape.num_heads, shape.num_kv_heads)

    @abstractmethod
    def belongs(self, number: int, i: Tensor, j: Tensor) -> Tensor:
        """Whether key position j is in set `number` of query position i, causality left out."""

    @abstractmethod
    def layouts(self, causal: bool) -> list[Layout]:
        """The layout of each set."""

    def pattern(self, mask: Mask) -> Tensor:
        i, j = mask.query_positions[..., :, None], mask.key_positions[..., None, :]
        unions = []
        for pattern in self.patterns:
            sets = [self.belongs(number, i, j) for number in pattern]
            unions.append(torch.stack(torch.broadcast_tensors(*sets, i == j)[:-1]).any(dim=0))
        heads = self.shares.of_heads(i.device)
        return torch.stack(unions, dim=-3).index_select(-3, heads)

    def _unit(self, length: int, causal: bool) -> int:
        return self.unit

    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        contexts = []
        for share, pattern in enumerate(self.patterns):
            nths = range(len(pattern))
            contexts.append(merged(self._partial(tokens, share, nth, position) for nth in nths))
        return self.shares.together(contexts).to(tokens.values.dtype)

    def _partial(self, tokens: Tokens, share: int, nth: int, position: Position) -> Partial:
        """The set that stands `nth` in the pattern of `share`, less those before it."""
        number, counted = self.patterns[share][nth], self.patterns[share][:nth]
        layout = self.layouts(tokens.causal)[number]
        rows = []
        for row in Piece.of(tokens, layout).cut():
            parts = []
            for piece in row:
                allowed = self._adds(piece, number, counted, tokens.causal)
                parts.append(self._softmax(piece, allowed, share, position))
            rows.append(end_to_end(parts, dim=2))
        batch = len(tokens.query)
        return Partial(*(layout.back(x, batch) for x in end_to_end(rows, dim=0)))

    def _adds(self, piece: Piece, number: int, counted: Iterable[int], causal: bool) -> Tensor:
        """Which keys set `number` adds to the sets `counted`: bool (R, H or 1, c, s)."""
        i, j = piece.i[:, :, None], piece.j[:, None, :]
        adds = self.belongs(number, i, j) & piece.real[:, None]
        for other in counted:
            adds = adds & ~self.belongs(other, i, j)
        if causal:
            adds = adds & (j <= i)
        return adds[:, None] if piece.extra is None else adds[:, None] & piece.extra

    def _softmax(self, piece: Piece, allowed: Tensor, share: int, position: Position) -> Partial:
        """The heads of `share` over the allowed keys (R, H or 1, c, s): (R, H, c, .)."""
        scaled = self.shares.heads(piece.query, share) * position.score_scale(self.head_dim)
        scores = per_group(scaled, self.shares.groups(piece.keys, share).mT)
        term = position.score_term(piece.query, piece.keys, piece.i, piece.j)
        if term is not None:
            scores = scores + self.shares.heads(term, share)
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        powers, peak = powers_(scores, self.shares.heads(allowed, share))
        values = self.shares.groups(piece.values, share)
        kept = F.dropout(powers, self.dropout, self.training).to(values.dtype)
        context = per_group(kept, values)
        if "value_term" in position.hooks:
            others = [torch.zeros_like(kept)] * self.shares.count
            everyone = self.shares.together([*others[:share], kept, *others[share + 1 :]])
            value = position.value_term(everyone, piece.i, piece.j)
            context = context if value is None else context + self.shares.heads(value, share)
        return Partial(context, powers.sum(dim=-1, keepdim=True), peak)


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
