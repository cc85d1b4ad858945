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
    moved,
    moved_back,
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
        before: visible tokens before a query.
        after: visible tokens after a query, unless the mask is causal.

    Attributes:
        places_in_cache: positions count the tokens in the cache, which caps distances to the
            first tokens.
    """

    abilities = replace(BlockwiseKernel.abilities, crop=False)
    places_in_cache: ClassVar[bool] = False

    def __init__(self, shape: HeadShape, first: int, before: int, after: int) -> None:
        super().__init__(shape)
        self.first = first
        self.before = before
        self.after = after
        self.sees_all_up_to = first + before + 1

    def make_cache(self, beams: int) -> Cache:
        return RollingCache(self.first, self.before + 1, beams)

    def pattern(self, mask: Mask) -> Tensor:
        i, j = mask.query_positions[..., :, None], mask.key_positions[..., None, :]
        sees = (i - j <= self.before) & (j - i <= self.after) | (j < self.first)
        sees = sees if mask.causal else sees | (i < self.first)
        return sees if sees.dim() == 2 else sees[:, None]

    def _band(self, length: int, causal: bool) -> Band:
        after = 0 if causal else self.after
        return Band.cover(length, self.before, after, min(self.first, length))

    def _unit(self, length: int, causal: bool) -> int:
        return self._band(length, causal).size

    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        band = self._band(tokens.query.shape[2], tokens.causal)
        return self._beside(tokens, band, 0 if tokens.causal else band.first, position)

    def _sees(self, piece: Piece, layout: Layout, causal: bool) -> Tensor:
        assert isinstance(layout, Band)
        first, distance = layout.first, layout.distance(piece.i.device)  # equal for all blocks
        near = (distance <= self.before) & (distance >= -(0 if causal else self.after))
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
            cached = new.keys if self.places_in_cache else keys, new.values
            cache.append(KeysValues(*(moved(x, order) for x in cached)), real)
            return self._attend(q, keys, new.values, mask, position).context
        q, new = moved(query, order), KeysValues(*(moved(x, order) for x in new))
        met, columns = self._meet(q, new, real, position, cache)
        if not self.is_observed:
            return moved_back(self._context(*met, position), order)
        stood = None if mask.real is None else real_first(mask.real)
        if stood is not None:
            stood = stood.repeat_interleave(rows // stood.shape[0], dim=0)
            columns = stood.gather(1, columns.expand(rows, -1))
        return moved_back(self._observed(met, columns, mask.keys, order, position), order)

    def _meet(
        self,
        q: Tensor,
        new: KeysValues,
        real: Tensor | None,
        position: Position,
        cache: RollingCache,
    ) -> tuple["Met", Tensor]:
        """Return queries with their keys, and the position of each key: (C,) or (B*K, C)."""
        at, (keys, values) = cache.places(q.shape[2], q.device), new
        if not self.places_in_cache:
            keys = position.rotate(keys, at)
        held = cache.append(KeysValues(keys, values), real)
        keys, values, around = held if q.shape[2] == 1 else self._first_ones_first(held)
        columns, allowed = around.clamp(min=0), None
        if q.shape[2] > 1 or around.dim() == 2:
            distance = at[..., :, None] - around[..., None, :]
            allowed = (distance >= 0) & (around >= 0)[..., None, :]
            allowed &= (distance <= self.before) | (around < self.first)[..., None, :]
            allowed = allowed.view(-1, 1, *allowed.shape[-2:])  # (B or 1, 1, T, C)
        if self.places_in_cache:
            beyond = (at - at.clamp(max=self.first + self.before))[..., :1]
            at, around = at - beyond, torch.where(around < self.first, around, around - beyond)
            keys = position.rotate(keys, around)
        mask = Mask(at, around, extra=allowed, filled=real is None)
        met = Met(position.rotate(q, at), keys, values, mask)
        return met, columns

    def _first_ones_first(self, held: CachedTokens) -> CachedTokens:
        """Move the tokens that every query sees to the front; their slots differ by row."""
        if held.places.dim() == 1 or not self.first:
            return held
        later = (held.places < 0) | (held.places >= self.first)
        order = later.byte().argsort(dim=1, stable=True)
        keys, values = moved(held.keys, order), moved(held.values, order)
        return CachedTokens(keys, values, held.places.gather(1, order))

    def _observed(
        self, met: "Met", columns: Tensor, length: int, order: Tensor | None, position: Position
    ) -> Tensor:
        """Return the context; show its weights over all `length` tokens so far, in order."""
        weights = self.weights(met.query, met.keys, met.mask, position)
        index = columns.view(-1, 1, 1, columns.shape[-1]).expand_as(weights)
        blank = weights.new_zeros(*weights.shape[:3], length)
        shown = moved_back(blank.scatter_add(3, index, weights), order)
        allowed = met.mask.dense()

        def visible() -> Tensor:
            seen = torch.ones_like(weights)
            seen = seen if allowed is None else seen * allowed
            return moved_back(blank.scatter_add(3, index, seen), order) > 0

        used = self.edit_and_show(shown, visible)
        if used is None:
            return self._context(*met, position)
        weights = moved(used, order).gather(3, index)
        if met.mask.extra is not None:
            weights = weights.masked_fill(~met.mask.extra, 0.0)
        return self._weighted(weights, met.values, met.mask, position)


class Met(NamedTuple):
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
        super().__init__(shape, first=global_tokens, before=window, after=window)
