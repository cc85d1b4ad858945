"""The Transformer's stacks of layers, and what its decoder carries from one call to the next."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqattn.attention.base import Attention, AttentionFactory, AttentionOutput, Mixer
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask, padded_as_now, split_group, tokens_begin
from seqattn.errors import UserError
from seqattn.layers.sublayers import make_norm
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer, LayerShape, MixerFactory
from seqattn.models.base import State
from seqattn.models.head import SourceTokens
from seqattn.positions.base import Position, Stack
from seqattn.tokens import PAD

PositionFactory = Callable[[Stack], Position]
"""Makes a stack's own position scheme."""


class Slots(NamedTuple):
    """The attentions of a Transformer, one factory per layer and slot, and its positions."""

    encoder: Sequence[MixerFactory]
    decoder: Sequence[MixerFactory]
    cross: Sequence[AttentionFactory]
    position: PositionFactory


@dataclass
class TransformerState(State):
    """The decoder's past: caches per layer, and the source's keys and values per layer."""

    source: list[KeysValues]
    source_mask: Mask
    caches: list[Cache] | None
    beams: int
    length: int = 0
    real: Tensor | None = None
    """(B, L) True where a past token is no padding; None while none was padded."""
    source_tokens: SourceTokens | None = None
    can_crop: bool = False
    positions: Sequence[Position] | None = None
    """The layers' positions, prepared; None for one call."""

    def reorder(self, index: Tensor) -> None:
        for cache in self.caches or ():
            cache.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        for cache in self.caches or ():
            cache.keep(sentences)
        self.source = [
            KeysValues(*(part.index_select(0, sentences) for part in pair)) for pair in self.source
        ]
        assert self.source_mask.real is not None
        self.source_mask = Mask.full(self.source_mask.real.index_select(0, sentences))
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

    def _padded(self, new: Tensor) -> Tensor:
        """Positions (B*K, L) of all tokens by the real ones before them; `new` joins `real`."""
        new = new[:: self.beams].bool()  # the beams of a sentence share their padding
        past = self.real
        if past is None:
            past = torch.ones(new.shape[0], self.length, dtype=torch.bool, device=new.device)
        self.real = torch.cat((past, new), dim=1)
        keys = (self.real.long().cumsum(dim=1) - 1).clamp(min=0)
        return keys.repeat_interleave(self.beams, dim=0)


class LayerStack(nn.Module):
    """Layers one after the other, a norm at their end where norms stand before sublayers.

    Args:
        shape: of the layers.
        layers: each with its `self_attention`.
        position: makes the scheme of the stack.
        bidirectional: whether tokens see what comes after them.

    With the shape's `layer_drop` each layer is left out with this probability in training
    (LayerDrop, Fan et al. 2020, arXiv 1909.11556), for each sentence others. What it would make is
    computed all the same, so that every weight has a gradient on every rank.

    Raises:
        UserError: where a layer cannot take the position scheme.
    """

    def __init__(
        self,
        shape: LayerShape,
        layers: Sequence[EncoderLayer | DecoderLayer],
        position: PositionFactory,
        bidirectional: bool,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = make_norm(shape.norm, shape.dim) if shape.pre_norm else nn.Identity()
        mixers: list[Mixer] = [layer.self_attention for layer in layers]
        heads = [mixer.position_heads for mixer in mixers if isinstance(mixer, Attention)]
        stack = Stack(shape.dim, heads[0] if heads else 1, len(layers), bidirectional)
        kept = [getattr(mixer, "kept_heads", None) for mixer in mixers]
        if any(kept):
            whole = stack.heads(0)
            stack = replace(stack, kept_heads=[one or whole for one in kept])
        self.position = position(stack)
        check_position(self.position, mixers)
        limits = [self.position.max_length, *(mixer.max_length for mixer in mixers)]
        self.max_length = min((limit for limit in limits if limit is not None), default=None)
        """The longest sequence in tokens, None where there is no limit."""
        self.checkpointing = shape.checkpoint_activations
        self.layer_drop = shape.layer_drop
        for part in self.modules():
            if isinstance(part, Attention):
                part.drop_heads = shape.drop_heads

    def positions(self) -> list[Position]:
        """Each layer's part of the position scheme."""
        return [self.position.at_layer(number) for number in range(len(self.layers))]

    def kept(self, x: Tensor, output: Tensor) -> Tensor:
        """A layer's output (B, T, D), in training for some sentences what it read, x."""
        if not self.training or self.layer_drop == 0:
            return output
        left_out = torch.rand(len(x), 1, 1, device=x.device) < self.layer_drop
        return torch.where(left_out, x, output)

    def run(self, layer: nn.Module, *args: Any, cached: bool = False) -> Any:
        """Calls a layer; a cached call is never recomputed, which would write its cache twice."""
        if self.checkpointing and self.training and torch.is_grad_enabled() and not cached:
            again = padded_as_now()
            both = (nullcontext(), again)  # in the forward pass, and when it is computed again
            return checkpoint(layer, *args, use_reentrant=False, context_fn=lambda: both)
        return layer(*args)


class Encoder(LayerStack):
    """A stack of encoder layers. Args: as `LayerStack`, with the layers' self-attentions."""

    def __init__(
        self, shape: LayerShape, attentions: Sequence[MixerFactory], position: PositionFactory
    ) -> None:
        layers = [EncoderLayer(shape, attention) for attention in attentions]
        super().__init__(shape, layers, position, bidirectional=True)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        for number, layer in enumerate(self.layers):
            x = self.kept(x, self.run(layer, x, mask, self.position.at_layer(number)))
        return self.norm(x)


class Decoder(LayerStack):
    """A stack of decoder layers. Args: as `LayerStack`, with attentions as `Slots`."""

    layers: Sequence[DecoderLayer]  # type: ignore[assignment]

    def __init__(self, shape: LayerShape, memory_dim: int, slots: Slots) -> None:
        layers = [
            DecoderLayer(shape, memory_dim, own, cross)
            for own, cross in zip(slots.decoder, slots.cross, strict=True)
        ]
        super().__init__(shape, layers, slots.position, bidirectional=False)

    def forward(
        self, x: Tensor, mask: Mask, state: TransformerState, need_weights: bool = False
    ) -> tuple[Tensor, AttentionOutput | None]:
        """(B*K, T, D) -> (B*K, T, D), and what the last cross-attention gave, if there is one."""
        source_mask = replace(
            state.source_mask, query_positions=mask.query_positions, real_queries=mask.real_queries
        )
        caches: Sequence[Cache | None] = state.caches or [None] * len(self.layers)
        positions = state.positions or self.positions()
        attended = None
        for n, (layer, source, cache) in enumerate(zip(self.layers, state.source, caches)):
            asked = need_weights and n == len(self.layers) - 1
            output, attended = self.run(
                layer, x, mask, positions[n], source, source_mask, cache, asked,
                cached=cache is not None,
            )  # fmt: skip
            x = self.kept(x, output)
        return self.norm(x), attended


def check_position(position: Position, mixers: Sequence[Mixer]) -> None:
    """Refuses a position scheme that some layer's self-attention cannot take."""
    heads = {mixer.position_heads for mixer in mixers if isinstance(mixer, Attention)}
    if len(heads) > 1 and position.hooks - {"embed"}:
        counts = " and ".join(map(str, sorted(heads)))
        raise UserError(
            f"{type(position).__name__} is made for one number of heads and the layers have "
            f"{counts}; give them the same num_heads, or use position=sinusoidal, learned or none"
        )
    for mixer in mixers:
        missing = position.hooks - mixer.abilities.hooks - {"embed"}
        if missing:
            raise UserError(
                f"{mixer.name} cannot use {type(position).__name__}, which acts through "
                f"{' and '.join(sorted(missing))}; it takes schemes that act through "
                f"{', '.join(sorted(mixer.abilities.hooks | {'embed'}))}"
            )
