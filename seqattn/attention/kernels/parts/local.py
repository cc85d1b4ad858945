"""What kernels share that see the tokens near a query, and the first ones of the sequence."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from seqattn.attention.base import Kernel
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.parts.band import Bands
from seqattn.attention.kernels.parts.block import Block, Capped, Segment
from seqattn.attention.kernels.parts.ordered import Ordered, in_order
from seqattn.attention.kernels.parts.rolling import RollingCache
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class LocalKernel(Kernel):
    """Softmax over the `first` tokens, `before` ones before a query, itself and `after` behind it.

    A full pass cuts queries into blocks, each with its band of keys and the first keys; decoding
    runs over a rolling cache. All of it in real positions: every row's tokens are put first.

    Args:
        first: tokens at the beginning that every query sees; where queries look ahead, they see
            all tokens too.
        before: tokens before a query that it sees.
        after: tokens after a query that it sees unless the mask is causal.
    """

    places_in_cache: ClassVar[bool] = False
    """Whether positions count the tokens in the cache, which caps distances to the first."""

    def __init__(
        self,
        heads: tuple[int, int, int],
        dropout: float,
        first: int,
        before: int,
        after: int,
    ) -> None:
        super().__init__(*heads, dropout)
        self.first = first
        self.before = before
        self.after = after

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        tokens = in_order(query, new, mask)
        dropout = self.dropout if self.training else 0.0
        contexts, maps, kept = [], [], []
        for segment in self._segments(tokens, position, cache):
            contexts.append(segment.context(dropout))
            if self.observer is not None:
                maps.append(segment.weights(mask.keys))
                kept.append(segment)
        if self.observer is not None:
            observed = tokens.as_they_stood(torch.cat(maps, dim=2))
            self.observer(observed)
            if self.keep_weight_gradients:
                parts = tokens.as_ordered(observed).split([part.shape[2] for part in maps], dim=2)
                contexts = [one.weighted(part, dropout) for one, part in zip(kept, parts)]
        return tokens.back(contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=2))

    def _segments(
        self, tokens: Ordered, position: Position, cache: Cache | None
    ) -> Iterator[Segment]:
        """The queries in order, segment after segment, as they are cut for a pass or a step."""
        if cache is None:
            if self.first and not tokens.mask.causal:
                yield self._looking_everywhere(tokens, position)
            yield self._banded(tokens, position)
            return
        assert isinstance(cache, RollingCache)
        if tokens.mask.extra is not None:
            name = type(self).__name__
            raise UserError(f"a mask of your own cannot be joined while {name} decodes")
        for start in range(0, tokens.length, cache.last):
            # no more at once than the ring holds, so that none is overwritten that is still seen
            yield self._step(tokens.part(start, start + cache.last), position, cache)

    def _looking_everywhere(self, tokens: Ordered, position: Position) -> Segment:
        """The first queries, which see every token."""
        first, everyone = min(self.first, tokens.length), tokens.places
        at = everyone[:first]
        block = Block(
            position.rotate(tokens.query[:, :, :first], at),
            position.rotate(tokens.keys, everyone),
            tokens.values,
            at,
            everyone,
            tokens.allowed(at[None], everyone[None], None),
            everyone,
            position,
        )
        return Segment(block, Bands.whole(first))

    def _banded(self, tokens: Ordered, position: Position) -> Segment:
        """All queries, each beside its band and the first keys."""
        causal, rows, everyone = tokens.mask.causal, tokens.query.shape[0], tokens.places
        after = 0 if causal else self.after
        first = min(self.first, tokens.length)
        bands = Bands.cover(tokens.length, self.before, after)
        at, around = bands.query_places(everyone.device), bands.key_places(everyone.device)
        distance = at[0][:, None] - around[0]  # the same in every block
        near = (distance <= self.before) & (distance >= -after)
        near = near & ((around >= first) & (around < tokens.length))[:, None]  # (blocks, c, W)
        around = around.clamp(0, tokens.length - 1)
        keys = position.rotate(tokens.keys, everyone)
        early = everyone[:first].expand(bands.blocks, -1)
        near = torch.cat((_early(at, early, causal), near), dim=2) if first else near
        around = torch.cat((early, around), dim=1)
        at = at.clamp(max=tokens.length - 1)
        allowed = tokens.allowed(at, around, near)
        at, around = at.repeat(rows, 1), around.repeat(rows, 1)  # (B * blocks, c or W)
        block = Block(
            bands.queries(position.rotate(tokens.query, everyone)),
            bands.keys(keys, first),
            bands.keys(tokens.values, first),
            at,
            around,
            allowed,
            around,
            position,
        )
        if self.places_in_cache and tokens.length > self.first + self.before + 1:
            places = everyone.clamp(max=self.first + self.before)
            block = self._capped(
                block, bands.queries(position.rotate(tokens.query, places)), places[at]
            )
        return Segment(block, bands, 0 if causal else first)

    def _step(self, tokens: Ordered, position: Position, cache: RollingCache) -> Segment:
        """Queries over what the cache holds and themselves, which it holds from now on."""
        steps, real = tokens.length, tokens.real
        at = cache.places(steps, tokens.query.device)
        keys = tokens.keys if self.places_in_cache else position.rotate(tokens.keys, at)
        new = KeysValues(keys, tokens.values)
        if steps == 1 and real is None:
            cache.write(new)  # takes the place of the one token that is seen no longer
            kept = cache.kept(new)
        else:
            kept = cache.kept(new).followed_by(new, at if real is None else at.where(real, -1))
            cache.write(new, real)
        around, allowed = kept.places, None
        if steps > 1 or around.dim() == 2:
            distance = at[..., :, None] - around[..., None, :]
            allowed = (distance >= 0) & (around >= 0)[..., None, :]
            allowed &= (distance <= self.before) | (around < self.first)[..., None, :]
            allowed = allowed.view(-1, 1, *allowed.shape[-2:])  # (B or 1, 1, T, C)
        columns, keys = around.clamp(min=0), kept.keys
        inside = at.clamp(max=self.first + self.before)  # places among the tokens in the cache
        if self.places_in_cache:
            beyond = (at - inside)[..., :1]
            at = at - beyond
            around = torch.where(around < self.first, around, around - beyond)
            keys = position.rotate(keys, around)
        query = position.rotate(tokens.query, at)
        block = Block(query, keys, kept.values, at, around, allowed, columns, position)
        if self.places_in_cache and steps > 1:
            block = self._capped(block, position.rotate(tokens.query, inside), inside)
        return Segment(block, Bands.whole(steps))

    def _capped(self, block: Block, turned: Tensor, places: Tensor) -> Block:
        """The block with other places of its queries towards the first keys, if there are any."""
        first = min(self.first, block.keys.shape[2])
        return replace(block, capped=Capped(turned, places, first)) if first else block

    def make_cache(self, beams: int) -> Cache:
        return RollingCache(self.first, self.before + 1, beams)


def _early(at: Tensor, early: Tensor, causal: bool) -> Tensor:
    """Whether queries at (blocks, c) see the first keys (blocks, g): bool (blocks, c, g)."""
    behind = early[:, None] <= at[..., None]
    return behind if causal else torch.ones_like(behind)
