"""Sliding-window attention, and the base it shares with streaming attention."""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.blockwise import (
    BlockwiseKernel,
    Piece,
    Tokens,
    in_order,
    original_order,
    real_rows,
)
from seqattn.attention.kernels.shared.layouts import Band, Layout
from seqattn.attention.kernels.shared.rolling_cache import CachedTokens, RollingCache
from seqattn.attention.masks import Mask, real_first
from seqattn.checking import Count, CountOrNone
from seqattn.positions.base import Position


class LocalKernel(BlockwiseKernel):
    """Softmax over the `first` tokens, and over `before` tokens before and `after` after a query.

    A full pass splits queries into blocks, each with its band of keys and the first keys; decoding
    uses a rolling cache. Positions count real tokens.

    Args:
        first: initial tokens that every query sees; if not causal, they also see all tokens.
        keys_before: visible tokens before a query.
        keys_after: visible tokens after a query, unless the mask is causal.

    Attributes:
        positions_in_cache: positions count the tokens in the cache, which caps distances to the
            first tokens.
    """

    abilities = replace(BlockwiseKernel.abilities, crop=False)
    positions_in_cache: ClassVar[bool] = False

    def __init__(self, shape: HeadShape, first: int, keys_before: int, keys_after: int) -> None:
        super().__init__(shape)
        self.first = first
        self.keys_before = keys_before
        self.keys_after = keys_after
        self.sees_all_up_to = first + keys_before + 1

    def make_cache(self, beams: int) -> Cache:
        return RollingCache(self.first, self.keys_before + 1, beams)

    def pattern(self, mask: Mask) -> Tensor:
        i, j = mask.query_positions[..., :, None], mask.key_positions[..., None, :]
        sees = (i - j <= self.keys_before) & (j - i <= self.keys_after) | (j < self.first)
        sees = sees if mask.causal else sees | (i < self.first)
        return sees if sees.dim() == 2 else sees[:, None]

    def _band(self, length: int, causal: bool) -> Band:
        keys_after = 0 if causal else self.keys_after
        return Band.cover(length, self.keys_before, keys_after, min(self.first, length))

    def _unit(self, length: int, causal: bool) -> int:
        return self._band(length, causal).size

    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        band = self._band(tokens.query.shape[2], tokens.causal)
        return self._beside(tokens, band, 0 if tokens.causal else band.first, position)

    def _sees(self, piece: Piece, layout: Layout, causal: bool) -> Tensor:
        assert isinstance(layout, Band)
        first, distance = layout.first, layout.distance(piece.i.device)  # equal for all blocks
        near = (distance <= self.keys_before) & (distance >= -(0 if causal else self.keys_after))
        near = near & (piece.j >= first)[:, None, first:]
        if not first:
            return near
        early = (piece.j >= 0)[:, None, :first].expand(-1, layout.size, -1)
        if causal:
            early = early & (piece.j[:, None, :first] <= piece.i[..., None])
        return torch.cat((early, near), dim=2)

    def _decoded(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position, cache: Cache
    ) -> Tensor:
        """Attend over the cache; a first call with several tokens is a full pass."""
        assert isinstance(cache, RollingCache)
        assert mask.extra is None, "custom masks are not supported in decoding"
        rows, _, steps, _ = query.shape
        real, order = real_rows(mask.real, rows, steps)
        if cache.length == 0 and steps > 1 and (not self.is_observed or cache.beams == 1):
            q, keys = self._rotated(query, new.keys, mask, position)
            cached = new.keys if self.positions_in_cache else keys, new.values
            cache.append(KeysValues(*(in_order(x, order) for x in cached)), real)
            return self._attend(q, keys, new.values, mask, position).context
        q, new = in_order(query, order), KeysValues(*(in_order(x, order) for x in new))
        inputs, columns = self._inputs(q, new, real, position, cache)
        if not self.is_observed:
            return original_order(self._context(*inputs, position), order)
        token_order = None if mask.real is None else real_first(mask.real)
        if token_order is not None:
            token_order = token_order.repeat_interleave(rows // token_order.shape[0], dim=0)
            columns = token_order.gather(1, columns.expand(rows, -1))
        return original_order(self._observed(inputs, columns, mask.keys, order, position), order)

    def _inputs(
        self,
        q: Tensor,
        new: KeysValues,
        real: Tensor | None,
        position: Position,
        cache: RollingCache,
    ) -> tuple["AttentionInputs", Tensor]:
        """Return queries with their keys, and the position of each key: (C,) or (B*K, C)."""
        i, (keys, values) = cache.next_positions(q.shape[2], q.device), new
        if not self.positions_in_cache:
            keys = position.rotate(keys, i)
        cached = cache.append(KeysValues(keys, values), real)
        keys, values, j = cached if q.shape[2] == 1 else self._first_ones_first(cached)
        columns, allowed = j.clamp(min=0), None
        if q.shape[2] > 1 or j.dim() == 2:
            distance = i[..., :, None] - j[..., None, :]
            allowed = (distance >= 0) & (j >= 0)[..., None, :]
            allowed &= (distance <= self.keys_before) | (j < self.first)[..., None, :]
            allowed = allowed.view(-1, 1, *allowed.shape[-2:])  # (B or 1, 1, T, C)
        if self.positions_in_cache:
            beyond = (i - i.clamp(max=self.first + self.keys_before))[..., :1]
            i, j = i - beyond, torch.where(j < self.first, j, j - beyond)
            keys = position.rotate(keys, j)
        mask = Mask(i, j, extra=allowed, all_see=real is None)
        inputs = AttentionInputs(position.rotate(q, i), keys, values, mask)
        return inputs, columns

    def _first_ones_first(self, cached: CachedTokens) -> CachedTokens:
        """Move the tokens that every query sees to the front; their slots differ by row."""
        if cached.positions.dim() == 1 or not self.first:
            return cached
        later = (cached.positions < 0) | (cached.positions >= self.first)
        order = later.byte().argsort(dim=1, stable=True)
        keys, values = in_order(cached.keys, order), in_order(cached.values, order)
        return CachedTokens(keys, values, cached.positions.gather(1, order))

    def _observed(
        self,
        inputs: "AttentionInputs",
        columns: Tensor,
        length: int,
        order: Tensor | None,
        position: Position,
    ) -> Tensor:
        """Return the context; show its weights over all `length` tokens so far, in order."""
        weights = self.weights(inputs.query, inputs.keys, inputs.mask, position)
        index = columns.view(-1, 1, 1, columns.shape[-1]).expand_as(weights)
        blank = weights.new_zeros(*weights.shape[:3], length)
        all_weights = original_order(blank.scatter_add(3, index, weights), order)
        allowed = inputs.mask.dense()

        def visible() -> Tensor:
            visible_slots = torch.ones_like(weights)
            visible_slots = visible_slots if allowed is None else visible_slots * allowed
            return original_order(blank.scatter_add(3, index, visible_slots), order) > 0

        used = self.edit_and_show(all_weights, visible)
        if used is None:
            return self._context(*inputs, position)
        weights = in_order(used, order).gather(3, index)
        if inputs.mask.extra is not None:
            weights = weights.masked_fill(~inputs.mask.extra, 0.0)
        return self._weighted(weights, inputs.values, inputs.mask, position)


class AttentionInputs(NamedTuple):
    """Queries that are decoded together, and the keys that they see."""

    query: Tensor
    keys: Tensor
    values: Tensor
    mask: Mask


class SlidingWindowKernel(LocalKernel):
    """Softmax over the keys within a window (Beltagy et al. 2020, arXiv 2004.05150, section 3.1).

    A query at i sees the 2 * window + 1 keys at j with |i - j| <= window; under a causal mask those
    from i - window to i. The first `global_tokens` of a sequence see all and are seen by all,
    except ahead under a causal mask. They share the projections of the other tokens, while
    Longformer has separate ones.

    Time n*w*D and memory n*w, without n x n tensors. The rolling cache holds 2*G*Dh numbers for
    each of the last window + 1 tokens and of the global ones, for any sequence length.
    Bidirectional, causal and incremental; not cross.

    Args:
        window: visible keys on each side of a query, at least 1.
        global_tokens: initial tokens that see all and are seen by all.
    """

    def __init__(
        self, shape: HeadShape, window: Count = 256, global_tokens: CountOrNone = 0
    ) -> None:
        super().__init__(shape, first=global_tokens, keys_before=window, keys_after=window)
