"""The Transformer's stacks of layers."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqattn.attention.base import Attention, AttentionFactory, AttentionOutput, Mixer
from seqattn.attention.cache import Cache
from seqattn.attention.masks import Mask, padded_as_now
from seqattn.errors import UserError
from seqattn.layers.sublayers import make_norm
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer, LayerShape, MixerFactory
from seqattn.models.transformer_state import TransformerState
from seqattn.positions.base import Position, Stack

PositionFactory = Callable[[Stack], Position]
"""Makes a stack's own position scheme."""


class Slots(NamedTuple):
    """The attentions of a Transformer, one factory per layer and slot, and its positions."""

    encoder: Sequence[MixerFactory]
    decoder: Sequence[MixerFactory]
    cross: Sequence[AttentionFactory]
    position: PositionFactory


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
        self.compiled: dict[nn.Module, Callable[..., Any]] = {}  # see `compile_layers`

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
        if not self.training or not torch.is_grad_enabled() or cached:
            return layer(*args)
        call = self.compiled.get(layer, layer)
        if not self.checkpointing:
            return call(*args)
        both = (nullcontext(), padded_as_now())  # in the forward pass, and when computed again
        return checkpoint(call, *args, use_reentrant=False, context_fn=lambda: both)


def compile_layers(model: nn.Module, **options: Any) -> None:
    """Compiles the layers of a model's stacks for training; evaluation runs them as they are.

    All layers of a kind share their code, for any length; a search, whose past grows, would not.

    Args:
        model: the model.
        options: of `torch.compile`.
    """
    for stack in model.modules():
        if isinstance(stack, LayerStack):
            stack.compiled = {layer: torch.compile(layer, **options) for layer in stack.layers}


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


class PositionRefused(UserError):
    """A mixer does not take what a position scheme acts through."""

    def __init__(self, mixer: Mixer, position: Position) -> None:
        self.mixer, self.position = mixer, position
        missing = sorted(position.hooks - mixer.abilities.hooks - {"embed"})
        super().__init__(
            f"{mixer.name} cannot use {type(position).__name__}, which acts through "
            f"{' and '.join(missing)}; it takes schemes that act through "
            f"{', '.join(sorted(mixer.abilities.hooks | {'embed'}))}"
        )


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
        if position.hooks - mixer.abilities.hooks - {"embed"}:
            raise PositionRefused(mixer, position)
