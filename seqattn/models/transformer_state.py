"""What a Transformer's decoder carries from one call to the next."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.attention.split import split_group
from seqattn.errors import UserError
from seqattn.models.base import State
from seqattn.models.head import SourceTokens
from seqattn.tokens import PAD


@dataclass
class TransformerState(State):
    """The decoder's past: caches per layer, and the source's keys and values per layer."""

    source: list[KeysValues]
    source_mask: Mask
    caches: list[Cache] | None
    beams: int
    length: int = 0
    real: Tensor | None = field(default=None)
    """(B, L) True where a past token is no padding; None while none was padded."""
    source_tokens: SourceTokens | None = None
    can_crop: bool = False
    """Whether every cache can."""

    def reorder(self, index: Tensor) -> None:
        for cache in self.caches or ():
            cache.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        for cache in self.caches or ():
            cache.keep(sentences)
        self.source = [
            KeysValues(*(part.index_select(0, sentences) for part in pair)) for pair in self.source
        ]
        mask = self.source_mask
        keys = mask.key_positions
        self.source_mask = replace(
            mask,
            real=None if mask.real is None else mask.real.index_select(0, sentences),
            key_positions=keys if keys.dim() == 1 else keys.index_select(0, sentences),
        )
        if self.real is not None:
            self.real = self.real.index_select(0, sentences)
        if self.source_tokens is not None:
            self.source_tokens = self.source_tokens.keep(sentences)

    def crop(self, length: int) -> None:
        if not self.can_crop or self.caches is None:
            raise UserError(
                "this state cannot forget tokens: it was started with cached=False, or an "
                "attention of the decoder has a cache that cannot"
            )
        if not 0 <= length <= self.length:
            raise UserError(f"a state of {self.length} tokens cannot be cropped to {length}")
        for cache in self.caches:
            cache.crop(length)
        self.length = length
        self.real = None if self.real is None else self.real[:, :length]

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self.caches or ())

    def advance(self, ids: Tensor) -> Mask:
        """The mask of self-attention for ids (B*K, T), which from now on are part of the past."""
        if self.caches is None and self.length:
            raise UserError("a state started with cached=False serves one decode; start another")
        if split_group() is not None:
            raise UserError("a decoder reads whole sequences; leave sequence_parallel for it")
        steps = ids.shape[1]
        real = asking = None if steps == 1 and self.length else ids != PAD
        end = self.length + steps
        if real is not None and not torch.compiler.is_compiling():
            # causality hides padding on the right, unless more tokens are to follow it
            first = real[:, 0] if self.caches is None else real
            real = None if bool(first.all()) else real
        if real is None and self.real is None:
            everyone = torch.arange(end, device=ids.device)
            mask = Mask(everyone[self.length :], everyone, causal=True, real_queries=asking)
        else:
            padded = self._padded(ids if real is None else real, end)
            mask = replace(padded, real_queries=asking)
        self.length = end
        return mask

    def _padded(self, new: Tensor, end: int) -> Mask:
        new = new[:: self.beams].bool()  # the beams of a sentence share their padding
        past = self.real
        if past is None:
            past = torch.ones(new.shape[0], self.length, dtype=torch.bool, device=new.device)
        self.real = torch.cat((past, new), dim=1)
        keys = (self.real.long().cumsum(dim=1) - 1).clamp(min=0)  # real tokens before each
        keys = keys.repeat_interleave(self.beams, dim=0)  # (B*K, L)
        return Mask(keys[:, self.length :], keys, self.real, causal=True)
