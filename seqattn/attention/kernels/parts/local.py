"""What kernels share that see the tokens near a query, and the first ones of the sequence."""

from dataclasses import replace
from itertools import repeat
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqattn.attention.base import HeadShape
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.parts.blockwise import BlockwiseKernel
from seqattn.attention.kernels.parts.layouts import Band, Layout
from seqattn.attention.kernels.parts.ordering import Piece, Tokens, moved, moved_back, real_rows
from seqattn.attention.kernels.parts.rolling import RollingCache
from seqattn.attention.masks import Mask, real_first
from seqattn.errors import UserError
from seqattn.positions.base import Position


class LocalKernel(BlockwiseKernel):
    """Softmax over the `first` tokens, `before` ones before a query, itself and `after` behind it.

    A full pass cuts queries into blocks, each with its band of keys and the first keys; decoding
    runs over a rolling cache. All of it in real positions.

    Args:
        shape: numbers and width of the heads, and the dropout.
        first: tokens at the beginning that every query sees; where queries look ahead, they see
            all tokens too.
        before: tokens before a query that it sees.
        after: tokens after a query that it sees unless the mask is causal.
    """

    abilities = replace(BlockwiseKernel.abilities, crop=False)
    places_in_cache: ClassVar[bool] = False
    """Whether positions count the tokens in the cache, which caps distances to the first."""

    def __init__(self, shape: HeadShape, first: int, before: int, after: int) -> None:
        super().__init__(shape)
        self.first = first
        self.before = before
        self.after = after

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
        first, distance = layout.first, layout.distance(piece.i.device)  # the same in every block
        near = (distance <= self.before) & (distance >= -(0 if causal else self.after))
        near = near & (piece.real & (piece.j >= first))[:, None, first:]
        if not first:
            return near
        early = piece.real[:, None, :first].expand(-1, layout.size, -1)
        if causal:
            early = early & (piece.j[:, None, :first] <= piece.i[..., None])
        return torch.cat((early, near), dim=2)

    def _decoded(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position, cache: Cache
    ) -> Tensor:
        """Over what the cache holds."""
        assert isinstance(cache, RollingCache)
        if mask.extra is not None:
            name = type(self).__name__
            raise UserError(f"a mask of your own cannot be joined while {name} decodes")
        real, order = real_rows(mask.real, len(query), query.shape[2])
        whole = [moved(x, order).split(cache.last, dim=2) for x in (query, *new)]
        reals = repeat(None) if real is None else real.split(cache.last, dim=1)
        # no more at once than the ring holds, so that none is overwritten that is still seen
        steps = [
            self._step(q, KeysValues(k, v), real, position, cache, query.shape[2] == 1)
            for q, k, v, real in zip(*whole, reals)
        ]
        contexts = None if self.observer is None else self._observed(steps, mask, order, position)
        if contexts is None:
            contexts = [self._fast(step.query, step.seen, step.mask, position) for step in steps]
        return moved_back(torch.cat(contexts, dim=2), order)

    def _step(
        self,
        q: Tensor,
        new: KeysValues,
        real: Tensor | None,
        position: Position,
        cache: RollingCache,
        alone: bool,
    ) -> "Step":
        """Queries beside what the cache holds and themselves, which it holds from now on.

        A step that is not `alone` keeps copies, as the next ones write over what it sees.
        """
        steps = q.shape[2]
        at = cache.places(steps, q.device)
        if not self.places_in_cache:
            new = KeysValues(position.rotate(new.keys, at), new.values)
        if alone and real is None:
            cache.write(new)  # takes the place of the one token that is seen no longer
            kept = cache.kept(new)
        else:
            kept = cache.kept(new).followed_by(new, at if real is None else at.where(real, -1))
            cache.write(new, real)
        around, allowed, keys = kept.places, None, kept.keys
        if not alone or around.dim() == 2:
            distance = at[..., :, None] - around[..., None, :]
            allowed = (distance >= 0) & (around >= 0)[..., None, :]
            allowed &= (distance <= self.before) | (around < self.first)[..., None, :]
            allowed = allowed.view(-1, 1, *allowed.shape[-2:])  # (B or 1, 1, T, C)
        columns = around.clamp(min=0)
        if self.places_in_cache:
            beyond = (at - at.clamp(max=self.first + self.before))[..., :1]
            at, around = at - beyond, torch.where(around < self.first, around, around - beyond)
            keys = position.rotate(keys, around)
        seen = KeysValues(keys, kept.values)
        return Step(position.rotate(q, at), seen, Mask(at, around, extra=allowed), columns)

    def _observed(
        self, steps: list["Step"], mask: Mask, order: Tensor | None, position: Position
    ) -> list[Tensor] | None:
        """Shows the weights over all tokens so far; the contexts made of them where asked for."""
        assert self.observer is not None
        stood = None if mask.real is None else real_first(mask.real)
        if stood is not None:
            stood = stood.repeat_interleave(len(steps[0].query) // len(stood), dim=0)
        maps = []
        for step in steps:
            weights = self.weights(step.query, step.seen.keys, step.mask, position)
            blank = weights.new_zeros(*weights.shape[:3], mask.keys)
            maps.append(blank.scatter_add(3, step.places(weights), weights))
        ordered = torch.cat(maps, dim=2)
        observed = moved_back(moved_back(ordered.mT, stood).mT, order)
        self.observer(observed)
        if not self.keep_weight_gradients:
            return None
        parts = moved(moved(observed.mT, stood).mT, order).split([x.shape[2] for x in maps], dim=2)
        contexts = []
        for step, part in zip(steps, parts):
            weights = part.gather(3, step.places(part))
            if step.mask.extra is not None:
                weights = weights.masked_fill(~step.mask.extra, 0.0)
            contexts.append(self._weighted(weights, step.seen.values, step.mask, position))
        return contexts

    def make_cache(self, beams: int) -> Cache:
        return RollingCache(self.first, self.before + 1, beams)


class Step(NamedTuple):
    """Queries that are decoded together, and the keys that they meet."""

    query: Tensor
    seen: KeysValues
    mask: Mask
    columns: Tensor
    """(C,) or (B*K, C), how many tokens of the row stand before each key."""

    def places(self, x: Tensor) -> Tensor:
        """The columns, for every query of x (B*K, H, T, ...)."""
        columns = self.columns if self.columns.dim() == 1 else self.columns[:, None, None]
        return columns.expand(*x.shape[:3], -1)
