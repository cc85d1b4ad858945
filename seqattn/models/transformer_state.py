"""State of a Transformer decoder between calls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqattn.attention.cache import Cache, GrowingCache, KeysValues, share_tables
from seqattn.attention.fixed_cache import FixableCache, FixedCache, FixedTable, fill
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
    table: FixedTable | None = None
    """Slots of the tokens if all tensors are fixed, see `fix`; None if the caches grow."""

    def __post_init__(self) -> None:
        share_tables(self.caches or ())

    def reorder(self, index: Tensor) -> None:
        if self.table is not None:
            self.table.reorder(index)
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

    @property
    def can_fix(self) -> bool:
        """True if `fix` is supported."""
        return bool(self.caches) and all(
            # other kernels need their tokens in order, or choose some of them
            isinstance(cache, FixableCache) or (type(cache) is GrowingCache and cache.forgets)
            for cache in self.caches or ()
        )

    def fix(self, capacity: int) -> None:
        """Hold all in tensors that never move, for `capacity` tokens, before the first of them.

        Afterwards tokens are decoded one at a time, and `load` takes the place of `keep`.
        """
        real = self.source_mask.real
        assert real is not None
        assert self.caches is not None
        self.table = FixedTable(len(real), self.beams, capacity, real.device)
        for number, cache in enumerate(self.caches):
            if isinstance(cache, FixableCache):
                cache.token_index = self.table.token_index
            else:
                self.caches[number] = FixedCache(self.table)
        self.positions = None  # what they prepare would be of the weights at the capture
        self.source_mask = replace(self.source_mask, bounds=None, all_see=True)
        real[:, 0] = True  # so that each row has a key

    def load(self, other: "TransformerState", rows: Tensor | None = None) -> None:
        """Copy another state, before its first token or fixed, into this fixed and no smaller one.

        Unused rows get a source of one token, so that each has a key.

        Args:
            other: the state to copy.
            rows: (B',) its rows; None for all.
        """
        assert self.table is not None
        for cache in (self.table, *(self.caches or ())):
            cache.reset()
        for target, source in zip(self.tensors(), other.tensors()):
            fill(target, source, rows)
        if other.table is not None:
            self.table.token_index.copy_(other.table.token_index)
        assert self.source_mask.real is not None
        self.source_mask.real[:, 0] = True

    def tensors(self) -> list[Tensor]:
        """Return its tensors, each (B, ...), the source's first."""
        assert self.source_mask.real is not None
        parts = [x for pair in self.source for x in pair.tensors()]
        parts += [self.source_mask.real, *(self.source_tokens or ())]
        if self.table is not None:
            parts.append(self.table.ancestry)
            for cache in self.caches or ():
                parts += cache.tensors()  # type: ignore[attr-defined]
        rows = len(self.source_mask.real)
        return [x.unflatten(0, (rows, -1)) for x in parts]

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self.caches or ())

    def advance(self, ids: Tensor) -> Mask:
        """Add ids (B*K, T) to the past, and return their self-attention mask."""
        assert self.caches is not None or not self.length, "cached=False supports only one decode"
        assert split_group() is None, "a decoder needs unsplit sequences"
        if self.table is not None:
            return self._next_slot(self.table)
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

    def _next_slot(self, table: FixedTable) -> Mask:
        """Advance by one token, and return the mask of its slots."""
        table.advance()
        vars(self.source_mask).pop("cached_visible", None)  # of the sources at the capture
        slots = torch.arange(table.capacity, device=table.token_index.device)
        # a new tensor for each step, as positions keep their tables by tensor
        return Mask(table.token_index.clone(), slots, causal=True, all_see=True)

    def _padded(self, new: Tensor) -> Tensor:
        """Add `new` to `real`, and return positions (B*K, L) that count only real tokens."""
        new = new[:: self.beams].bool()  # equal for the beams of a sentence
        past = self.real
        if past is None:
            past = torch.ones(new.shape[0], self.length, dtype=torch.bool, device=new.device)
        self.real = torch.cat((past, new), dim=1)
        keys = (self.real.long().cumsum(dim=1) - 1).clamp(min=0)
        return keys.repeat_interleave(self.beams, dim=0)
