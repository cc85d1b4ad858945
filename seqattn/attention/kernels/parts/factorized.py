"""Factorized attention: a few index sets, each dense in a layout of its own, merged exactly."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities
from seqattn.attention.kernels.parts.layouts import Layout, Shares
from seqattn.attention.kernels.parts.pieces import Piece
from seqattn.attention.kernels.parts.sparse import Arranged, SparseKernel
from seqattn.attention.kernels.softmax import per_group
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class Partial(NamedTuple):
    """A softmax over one of several disjoint key sets, not yet divided by the sum over all."""

    context: Tensor
    """(B, H, N, Dh), values weighted by exp(score - peak)."""
    total: Tensor
    """(B, H, N, 1), the sum of those exponentials."""
    peak: Tensor
    """(B, H, N, 1), the largest score, -inf with nothing to see; no gradient."""


def joined(parts: Iterable[Partial], dim: int) -> Partial:
    """Partials of different queries, end to end."""
    context, total, peak = zip(*parts)
    return Partial(torch.cat(context, dim), torch.cat(total, dim), torch.cat(peak, dim))


def merged(parts: list[Partial]) -> Tensor:
    """The softmax over the union of disjoint key sets: (B, H, N, Dh), zeros with nothing to see."""
    peak = torch.stack([part.peak for part in parts]).amax(dim=0)
    peak = peak.masked_fill(peak == -torch.inf, 0.0)
    factors = [(part.peak - peak).exp() for part in parts]
    total = torch.stack([x * part.total for x, part in zip(factors, parts)]).sum(dim=0)
    total = total.masked_fill(total == 0, 1.0)
    return torch.stack([x / total * part.context for x, part in zip(factors, parts)]).sum(dim=0)


class FactorizedKernel(SparseKernel):
    """Softmax over a union of index sets (Child et al. 2019, arXiv 1904.10509, section 4).

    Every set is dense in a layout of its own; a key in two sets of a head counts in the first.

    Args:
        unit: tokens that pieces come in multiples of, at least 1.
        patterns: the numbers of the sets that each equal share of the heads attends to.
    """

    abilities = Abilities(
        bidirectional=True,
        causal=True,
        cross=False,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
    )

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float,
        unit: int,
        patterns: tuple[tuple[int, ...], ...],
    ) -> None:
        super().__init__(num_heads, num_kv_heads, head_dim, dropout, unit)
        if num_heads % len(patterns):
            raise UserError(
                f"attention.num_heads must be even for heads of two patterns, got {num_heads}"
            )
        self.patterns = patterns
        self.shares = Shares(len(patterns), num_heads, num_kv_heads)

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

    def _pieces(self, arranged: Arranged, position: Position) -> Tensor:
        contexts = []
        for share, pattern in enumerate(self.patterns):
            nths = range(len(pattern))
            contexts.append(merged([self._partial(arranged, share, nth, position) for nth in nths]))
        return self.shares.together(contexts).to(arranged.values.dtype)

    def _partial(self, arranged: Arranged, share: int, nth: int, position: Position) -> Partial:
        """The set that stands `nth` in the pattern of `share`, less those before it."""
        number, counted = self.patterns[share][nth], self.patterns[share][:nth]
        layout = self.layouts(arranged.causal)[number]
        rows = []
        for row in Piece.folded(arranged, layout).cut():
            parts = []
            for piece in row:
                sees = self._sees(piece, number, counted, arranged.causal)
                parts.append(self._softmax(piece, sees, share, position))
            rows.append(joined(parts, dim=2))
        batch = arranged.query.shape[0]
        return Partial(*(layout.back(x, batch) for x in joined(rows, dim=0)))

    def _sees(self, piece: Piece, number: int, counted: Iterable[int], causal: bool) -> Tensor:
        """Which keys set `number` adds to the sets `counted`: bool (R, H or 1, c, s)."""
        i, j = piece.i[:, :, None], piece.j[:, None, :]
        sees = self.belongs(number, i, j) & piece.real[:, None]
        for other in counted:
            sees = sees & ~self.belongs(other, i, j)
        if causal:
            sees = sees & (j <= i)
        return sees[:, None] if piece.extra is None else sees[:, None] & piece.extra

    def _softmax(self, piece: Piece, sees: Tensor, share: int, position: Position) -> Partial:
        """The heads of `share` over the keys that `sees` (R, H or 1, c, s) shows: (R, H, c, .)."""
        scaled = self.shares.heads(piece.query, share) * position.score_scale(self.head_dim)
        scores = per_group(scaled, self.shares.groups(piece.keys, share).mT)
        term = position.score_term(piece.query, piece.keys, piece.i, piece.j)
        if term is not None:
            scores = scores + self.shares.heads(term, share)
        scores = scores.float() if scores.dtype.itemsize < 4 else scores
        scores = scores.masked_fill_(~self.shares.heads(sees, share), -torch.inf)
        peak = scores.detach().amax(dim=-1, keepdim=True)
        powers = scores.sub_(peak.masked_fill(peak == -torch.inf, 0.0)).exp_()
        values = self.shares.groups(piece.values, share)
        kept = F.dropout(powers, self.dropout, self.training).to(values.dtype)
        context = per_group(kept, values)
        if "value_term" in position.hooks:
            others = [torch.zeros_like(kept)] * self.shares.count
            everyone = self.shares.together([*others[:share], kept, *others[share + 1 :]])
            value = position.value_term(everyone, piece.i, piece.j)
            context = context if value is None else context + self.shares.heads(value, share)
        return Partial(context, powers.sum(dim=-1, keepdim=True), peak)
