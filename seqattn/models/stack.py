"""Layer stacks of a Transformer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqattn.attention.base import Attention, AttentionFactory, AttentionOutput, Mixer
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask, padded_as_now
from seqattn.errors import UserError
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer, LayerShape, MixerFactory
from seqattn.models.transformer_state import TransformerState
from seqattn.ops.gpu.compiling import compiled, vary
from seqattn.positions.base import Position, Stack

PositionFactory = Callable[[Stack], Position]
"""Factory of a stack's position scheme."""


class Slots(NamedTuple):
    """Attention factories of a Transformer, one per layer and slot, and its position scheme."""

    encoder: Sequence[MixerFactory]
    decoder: Sequence[MixerFactory]
    cross: Sequence[AttentionFactory]
    position: PositionFactory


class LayerStack(nn.Module):
    """Consecutive layers, with a final norm for pre-norm layers.

    Args:
        shape: settings of the layers.
        layers: layers with a `self_attention`.
        position: factory of the position scheme.
        bidirectional: tokens also see later tokens.

    With the shape's `layer_drop` each layer is skipped with this probability in training
    (LayerDrop, Fan et al. 2020, arXiv 1909.11556), independently for each sentence. Its output is
    computed anyway, so that every weight has a gradient on every rank.

    Raises:
        UserError: a layer does not support the position scheme.
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
        self.norm = shape.make_norm() if shape.pre_norm else nn.Identity()
        mixers: list[Mixer] = [layer.self_attention for layer in layers]
        attentions = [mixer for mixer in mixers if isinstance(mixer, Attention)]
        stack = Stack(shape.dim, 1, len(layers), bidirectional)
        if attentions:
            heads, width = attentions[0].position_heads, attentions[0].head_dim
            stack = replace(stack, num_heads=heads, explicit_head_dim=width)
        # a mixer that does not attend has no heads, and so no parameters of the position scheme
        retained = [mixer.kept_heads if isinstance(mixer, Attention) else () for mixer in mixers]
        if attentions and any(heads is not None for heads in retained):
            every = stack.heads(0)
            retained_heads = [every if heads is None else heads for heads in retained]
            stack = replace(stack, kept_heads=retained_heads)
        self.position = position(stack)
        check_position(self.position, mixers)
        limits = [self.position.max_length, *(mixer.max_length for mixer in mixers)]
        self.max_length = min((limit for limit in limits if limit is not None), default=None)
        """Longest sequence in tokens, None for no limit."""
        self.checkpointing = shape.checkpoint_activations
        self.layer_drop = shape.layer_drop
        for part in self.modules():
            if isinstance(part, Attention):
                part.drop_heads = shape.drop_heads
        self.compiled: dict[nn.Module, Callable[..., Any]] = {}  # see `compile_layers`
        self.compiled_steps: dict[nn.Module, Callable[..., Any]] = {}  # see `compiling_steps`

    def positions(self) -> list[Position]:
        """Return each layer's part of the position scheme."""
        return [self.position.at_layer(number) for number in range(len(self.layers))]

    def drop_layer(self, x: Tensor, output: Tensor) -> Tensor:
        """Return a layer's output (B, T, D), replaced by its input x for skipped sentences."""
        if not self.training or self.layer_drop == 0:
            return output
        left_out = torch.rand(len(x), 1, 1, device=x.device) < self.layer_drop
        return torch.where(left_out, x, output)

    def run(self, layer: nn.Module, *args: Any, cached: bool = False) -> Any:
        """Call a layer; never recompute a cached call, which would write its cache twice."""
        if cached:
            return self.compiled_steps.get(layer, layer)(*args)
        if not self.training or not torch.is_grad_enabled():
            return layer(*args)
        call = self.compiled.get(layer, layer)
        if call is not layer:
            _vary(args)
        if not self.checkpointing:
            return call(*args)
        contexts = (nullcontext(), padded_as_now())  # for the forward pass and for recomputation
        return checkpoint(call, *args, use_reentrant=False, context_fn=lambda: contexts)


def compile_layers(model: nn.Module, **options: Any) -> None:
    """Compile the layers of a model's stacks for training; evaluation stays uncompiled.

    All layers of a kind share compiled code, for any length; a search, whose past grows, could not.

    Args:
        model: the model.
        options: options of `torch.compile`.
    """
    for stack in model.modules():
        if isinstance(stack, LayerStack):
            parts = [*stack.layers, stack.norm]
            stack.compiled = {part: compiled(part, **options) for part in parts}


@contextmanager
def compiling_steps(model: nn.Module, **options: Any) -> Iterator[None]:
    """Compile the layers of steps on fixed tensors within the block. Args: as above."""
    stacks = [stack for stack in model.modules() if isinstance(stack, Decoder)]
    for stack in stacks:
        parts = [*stack.layers, stack.norm]
        stack.compiled_steps = {part: compiled(part, **options) for part in parts}
    try:
        yield
    finally:
        for stack in stacks:
            stack.compiled_steps = {}


def _vary(inputs: Sequence[Any]) -> None:
    """Tell the compiler which axes of a layer's inputs have any length."""
    for value in inputs:
        if isinstance(value, Tensor):
            vary(value, 0, 1)  # (B, T, D)
        elif isinstance(value, KeysValues):
            for part in value:
                vary(part, 0, 2)  # (B, G, S, Dh)
        elif isinstance(value, Mask):
            for part in vars(value).values():
                if isinstance(part, Tensor):
                    vary(part, *range(part.dim()))


class Encoder(LayerStack):
    """A stack of encoder layers. Args: as in `LayerStack`, with self-attention factories."""

    def __init__(
        self, shape: LayerShape, attentions: Sequence[MixerFactory], position: PositionFactory
    ) -> None:
        layers = [EncoderLayer(shape, attention) for attention in attentions]
        super().__init__(shape, layers, position, bidirectional=True)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Encode x, (B, S, D) -> (B, S, D)."""
        for number, layer in enumerate(self.layers):
            x = self.drop_layer(x, self.run(layer, x, mask, self.position.at_layer(number)))
        return self.run(self.norm, x)


class Decoder(LayerStack):
    """A stack of decoder layers. Args: as in `LayerStack`, with attentions as `Slots`."""

    layers: Sequence[DecoderLayer]  # type: ignore[assignment]

    def __init__(self, shape: LayerShape, memory_dim: int, slots: Slots) -> None:
        layers = [
            DecoderLayer(shape, memory_dim, self_attention, cross)
            for self_attention, cross in zip(slots.decoder, slots.cross, strict=True)
        ]
        super().__init__(shape, layers, slots.position, bidirectional=False)

    def forward(
        self, x: Tensor, mask: Mask, state: TransformerState, need_weights: bool = False
    ) -> tuple[Tensor, AttentionOutput | None]:
        """Decode x, (B*K, T, D) -> (B*K, T, D); also return the last cross-attention's output."""
        source_mask = state.source_mask.seen_by(mask)
        caches: Sequence[Cache | None] = state.caches or [None] * len(self.layers)
        positions = state.positions or self.positions()
        attended = None
        for n, (layer, source, cache) in enumerate(zip(self.layers, state.source, caches)):
            last = need_weights and n == len(self.layers) - 1
            output, attended = self.run(
                layer, x, mask, positions[n], source, source_mask, cache, last,
                cached=cache is not None,
            )  # fmt: skip
            x = self.drop_layer(x, output)
        return self.run(self.norm, x, cached=state.caches is not None), attended


class PositionRefused(UserError):
    """Error raised if a mixer does not support the hooks of a position scheme."""

    def __init__(self, mixer: Mixer, position: Position) -> None:
        self.mixer, self.position = mixer, position
        missing = sorted(position.hooks - mixer.abilities.hooks - {"embed"})
        super().__init__(
            f"{mixer.name} does not support {type(position).__name__}, which uses the hooks "
            f"{' and '.join(missing)}; choose a scheme that uses only "
            f"{', '.join(sorted(mixer.abilities.hooks | {'embed'}))}"
        )


def with_position(
    position: PositionFactory, *makers: Callable[[PositionFactory], LayerStack]
) -> Iterator[Any]:
    """Build the stacks of a model, those of mixers only without a scheme for attentions.

    Args:
        position: factory of the position scheme.
        makers: functions from such a factory to a stack.

    Raises:
        UserError: as `LayerStack`, or if no stack supports the scheme.
    """
    refused = []
    stacks: list[LayerStack] = []
    for make in makers:
        try:
            stacks.append(make(position))
        except PositionRefused as error:
            if isinstance(error.mixer, Attention):
                raise
            refused.append(error)
            stacks.append(make(Position))
    if refused and len(refused) == len(stacks):
        raise refused[0]
    return iter(stacks)


def check_position(position: Position, mixers: Sequence[Mixer]) -> None:
    """Raise UserError if a position scheme suits no layer, or not every layer that attends.

    Other mixers get no positions beside attentions that do: they know the order by themselves.
    """
    attentions = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    for what, key, values in (
        ("number of heads", "num_heads", {one.position_heads for one in attentions}),
        ("width of heads", "head_dim", {one.head_dim for one in attentions}),
    ):
        if len(values) > 1 and position.hooks - {"embed"}:
            raise UserError(
                f"{type(position).__name__} needs the same {what} in all layers, got "
                f"{' and '.join(map(str, sorted(values, key=str)))}; set a single attention.{key}, "
                "or position=sinusoidal, learned or none"
            )
    for mixer in attentions or mixers:
        if position.hooks - mixer.abilities.hooks - {"embed"}:
            raise PositionRefused(mixer, position)
