"""State of a Transformer decoder between calls."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqattn.attention.cache import Cache, GrowingCache, KeysValues, share_tables
from seqattn.attention.fixed_cache import FixedCache
from seqattn.attention.masks import Mask, split_group, tokens_begin
from seqattn.models.base import State
from seqattn.models.head import SourceTokens
from seqattn.positions.base import Position
from seqattn.tokens import PAD


@dataclass
class TransformerState(State):
    """The decoder's past: caches per layer, and the source's keys and values per layer."""

    source: list[KeysValues]
    source_mask: Mask
    caches: list[Cache] | None
    beams: int
    length: int = 0
    real: Tensor | None = None
    """(B, L) True where a past token is not padding; None if there was no padding."""
    source_tokens: SourceTokens | None = None
    can_crop: bool = False
    positions: Sequence[Position] | None = None
    """The layers' prepared position schemes; None for a single call."""
    place: Tensor | None = None
    """(1,) the last token's slot in each `FixedCache`; None if the caches grow."""

    def __post_init__(self) -> None:
        share_tables(self.caches or ())

    def reorder(self, index: Tensor) -> None:
        for cache in self.caches or ():
            cache.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        for cache in self.caches or ():
            cache.keep(sentences)
        self.source = [pair.keep(sentences) for pair in self.source]
        assert self.source_mask.real is not None
        self.source_mask = Mask.full(self.source_mask.real.index_select(0, sentences))
        if self.real is not None:
            self.real = self.real.index_select(0, sentences)
        if self.source_tokens is not None:
            self.source_tokens = self.source_tokens.keep(sentences)

    def crop(self, length: int) -> None:
        if not self.can_crop or self.caches is None:
            raise NotImplementedError
        assert 0 <= length <= self.length
        for cache in self.caches:
            cache.crop(length)
        self.length = length
        self.real = None if self.real is None else self.real[:, :length]

    def fix(self, size: int) -> bool:
        caches = self.caches or []
        if self.place is None:
            growing = [cache for cache in caches if type(cache) is GrowingCache and cache.forgets]
            if not caches or len(growing) < len(caches) or self.length:
                return False  # other kernels need their tokens in order, or fewer of them
            self.place = torch.full((1,), -1, device=self.source_mask.query_positions.device)
            self.caches = [FixedCache(self.beams, size, self.place) for _ in caches]
        for cache in self.caches or ():
            assert isinstance(cache, FixedCache)
            cache.grow(size)
        return True

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self.caches or ())

    def advance(self, ids: Tensor) -> Mask:
        """Add ids (B*K, T) to the past, and return their self-attention mask."""
        assert self.caches is not None or not self.length, "cached=False supports only one decode"
        assert split_group() is None, "a decoder needs unsplit sequences"
        if self.place is not None:
            return self._next_slot(self.place)
        steps = ids.shape[1]
        real = asking = None if steps == 1 and self.length else ids != PAD
        end = self.length + steps
        if real is not None and not torch.compiler.is_compiling():
            # causality hides padding on the right, unless more tokens follow it
            if self.caches is None or steps == 1:
                real = None if tokens_begin(real) else real
            else:
                real = None if bool(real.all()) else real
        if real is None and self.real is None:
            keys = torch.arange(end, device=ids.device)
        else:
            keys = self._padded(ids if real is None else real)
        queries = keys[..., self.length :]
        self.length = end
        return Mask(queries, keys, self.real, causal=True, real_queries=asking)

    def _next_slot(self, place: Tensor) -> Mask:
        """Advance by one token, and return the mask of the slots of fixed caches."""
        assert self.caches is not None
        cache = self.caches[0]
        assert isinstance(cache, FixedCache)
        place += 1
        slots = torch.arange(cache.size, device=place.device)
        # a new tensor for each step, as positions keep their tables by tensor
        return Mask(place.clone(), slots, (slots <= place)[None], causal=True)

    def _padded(self, new: Tensor) -> Tensor:
        """Add `new` to `real`, and return positions (B*K, L) that count only real tokens."""
        new = new[:: self.beams].bool()  # equal for the beams of a sentence
        past = self.real
        if past is None:
            past = torch.ones(new.shape[0], self.length, dtype=torch.bool, device=new.device)
        self.real = torch.cat((past, new), dim=1)
        keys = (self.real.long().cumsum(dim=1) - 1).clamp(min=0)
        return keys.repeat_interleave(self.beams, dim=0)
