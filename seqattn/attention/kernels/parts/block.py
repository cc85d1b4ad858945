"""Softmax attention over one batch of blocks: queries, the keys beside them, what may be seen."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.kernels.parts.band import Bands
from seqattn.attention.kernels.parts.fused import fused_attention
from seqattn.attention.kernels.softmax import per_group
from seqattn.positions.base import Position


class Capped(NamedTuple):
    """How queries stand to the first keys of their block where that differs from the rest.

    Queries (N, H, c, Dh) as turned for those keys, places (c,) or (N, c), and how many keys.
    """

    queries: Tensor
    places: Tensor
    keys: int


@dataclass(frozen=True)
class Block:
    """N independent pieces of a sequence (or of several), folded into the batch axis.

    Args:
        queries: (N, H, c, Dh), turned.
        keys: (N, G, W, Dh), turned.
        values: (N, G, W, Dh).
        query_places: (c,) or (N, c).
        key_places: (W,) or (N, W).
        allowed: bool, broadcastable to (N, H, c, W); None where all may be seen.
        columns: (W,) or (N, W), which token of its sequence each key is, to write weights out.
        position: the layer's scheme.
        capped: how the queries stand to the first keys; None where as to all.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    query_places: Tensor
    key_places: Tensor
    allowed: Tensor | None
    columns: Tensor
    position: Position
    capped: Capped | None = None

    def context(self, dropout: float) -> Tensor:
        """(N, H, c, Dh), on the fastest path; zeros for a query with nothing to see."""
        few = self.queries.shape[2] <= 8 and not self.queries.requires_grad
        if "value_term" in self.position.hooks or (few and self.queries.device.type == "cpu"):
            return self.weighted(self.weights(), dropout)
        q, keys, values = self.queries, self.keys, self.values
        if self._turned_apart is not None:
            q, keys = self._as_channels(self._turned_apart)
            values = F.pad(values, (0, keys.shape[3] - values.shape[3]))
        mask, alone = self._visible(self._term())
        scale = self.position.score_scale(self.keys.shape[3])
        context = fused_attention(q, keys, values, mask, dropout=dropout, scale=scale)
        context = context[..., : self.values.shape[3]]
        return context if alone is None else context.masked_fill(alone, 0.0)

    def weights(self) -> Tensor:
        """The weights written out: (N, H, c, W), rows sum to 1, or to 0 with nothing to see."""
        scores, apart = per_group(self.queries, self.keys.mT), self._turned_apart
        if apart is not None:
            first = per_group(apart.queries, self.keys[:, :, : apart.keys].mT)
            scores = torch.cat((first, scores[..., apart.keys :]), dim=3)
        scores = scores * self.position.score_scale(self.keys.shape[3])
        term = self._term()
        if term is not None:
            scores = scores + term
        if self.allowed is None:
            return scores.softmax(dim=-1)
        hidden = ~self.allowed
        alone = hidden.all(dim=-1, keepdim=True)  # a row of -inf would give NaN
        return (
            scores.masked_fill(hidden & ~alone, -torch.inf).softmax(dim=-1).masked_fill(hidden, 0)
        )

    def weighted(self, weights: Tensor, dropout: float) -> Tensor:
        """The context (N, H, c, Dh) made of weights (N, H, c, W)."""
        dropped = F.dropout(weights, dropout, dropout > 0)
        context = per_group(dropped, self.values)
        first = 0 if self.capped is None else self.capped.keys
        parts = [(self.query_places, slice(first, None))]
        if self.capped is not None:
            parts.append((self.capped.places, slice(0, first)))
        for places, keys in parts:
            term = self.position.value_term(dropped[..., keys], places, self.key_places[..., keys])
            context = context if term is None else context + term
        return context

    def spread(self, weights: Tensor, length: int) -> Tensor:
        """Weights (N, H, c, W) written out over all tokens of the sequence: (N, H, c, length)."""
        dense = weights.new_zeros(*weights.shape[:3], length)
        return dense.scatter_add(3, self._index(weights), weights)

    def collect(self, dense: Tensor) -> Tensor:
        """Undoes `spread`: (N, H, c, length) -> (N, H, c, W)."""
        weights = dense.gather(3, self._index(dense))
        return weights if self.allowed is None else weights.masked_fill(~self.allowed, 0.0)

    def _index(self, x: Tensor) -> Tensor:
        columns = self.columns if self.columns.dim() == 1 else self.columns[:, None, None]
        return columns.expand(*x.shape[:3], -1)

    @property
    def _turned_apart(self) -> Capped | None:
        return self.capped if "rotate" in self.position.hooks else None

    def _as_channels(self, capped: Capped) -> tuple[Tensor, Tensor]:
        """Queries and keys with a channel more for each first key, which only that key reads.

        A query carries its product with the key there, so that the fused kernel, which knows one
        query, gives the first keys a score that was made with another.
        """
        first, width = capped.keys, self.keys.shape[3]
        spare = -(-first // 8) * 8  # fused kernels want widths of whole eights
        scale = self.position.score_scale(width)  # here, since half floats end at 65504
        scores = per_group(capped.queries * scale, self.keys[:, :, :first].mT)  # (N, H, c, first)
        queries = torch.cat((self.queries, F.pad(scores, (0, spare - first))), dim=3)
        reading = torch.eye(first, width + spare, device=queries.device, dtype=queries.dtype)
        reading = (reading.roll(width, dims=1) / scale).expand(*self.keys.shape[:2], -1, -1)
        rest = F.pad(self.keys[:, :, first:], (0, spare))
        return queries, torch.cat((reading, rest), dim=2)

    def _term(self) -> Tensor | None:
        if "score_term" not in self.position.hooks:
            return None
        q, k, at, term = self.queries, self.keys, self.key_places, self.position.score_term
        if self.capped is None:
            return term(q, k, self.query_places, at)
        first = self.capped.keys
        early = term(self.capped.queries, k[:, :, :first], self.capped.places, at[..., :first])
        rest = term(q, k[:, :, first:], self.query_places, at[..., first:])
        if early is None or rest is None:
            return None
        lead = torch.broadcast_shapes(early.shape[:-1], rest.shape[:-1])
        rest = rest.expand(*lead, k.shape[2] - first)
        return torch.cat((early.expand(*lead, first), rest), dim=-1)

    def _visible(self, term: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """What the fused kernel is to add or hide, and the queries that have nothing to see."""
        if term is not None:
            term = term.to(self.queries.dtype)
        if self.allowed is None:
            return term, None
        alone = ~self.allowed.any(dim=-1, keepdim=True)
        visible = self.allowed | alone
        return visible if term is None else term.masked_fill(~visible, -torch.inf), alone


class Segment(NamedTuple):
    """Queries that follow each other, cut into blocks, of which the first `skip` are left out."""

    block: Block
    bands: Bands
    skip: int = 0

    def context(self, dropout: float) -> Tensor:
        """(B, H, T, Dh)."""
        return self._join(self.block.context(dropout))

    def weights(self, length: int) -> Tensor:
        """The weights over all tokens of the sequence: (B, H, T, length)."""
        return self._join(self.block.spread(self.block.weights(), length))

    def weighted(self, weights: Tensor, dropout: float) -> Tensor:
        """The context made of weights (B, H, T, length)."""
        blank = weights.new_zeros(*weights.shape[:2], self.skip, weights.shape[3])
        cut = self.bands.queries(torch.cat((blank, weights), dim=2))
        return self._join(self.block.weighted(self.block.collect(cut), dropout))

    def _join(self, x: Tensor) -> Tensor:
        return self.bands.join(x)[:, :, self.skip :]
