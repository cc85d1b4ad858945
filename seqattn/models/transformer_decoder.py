"""The Transformer's stack of decoder layers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqattn.attention.base import Looked
from seqattn.attention.cache import Cache
from seqattn.attention.masks import Mask
from seqattn.layers.decoder_layer import DecoderLayer
from seqattn.layers.norm import make_norm
from seqattn.models.stack import check_position, first_heads, shortest
from seqattn.models.transformer_state import TransformerState
from seqattn.positions.base import Stack

if TYPE_CHECKING:
    from seqattn.models.transformer import Slots, TransformerConfig


class Decoder(nn.Module):
    """A stack of decoder layers. Args: as `Transformer`."""

    def __init__(self, config: "TransformerConfig", memory_dim: int, slots: "Slots") -> None:
        super().__init__()
        shape = config.shape(config.dim)
        self.layers = nn.ModuleList(
            DecoderLayer(shape, memory_dim, own, cross)
            for own, cross in zip(slots.decoder, slots.cross, strict=True)
        )
        self.norm = make_norm(config.norm, config.dim) if config.pre_norm else nn.Identity()
        stack = Stack(config.dim, first_heads(self.layers), len(self.layers), bidirectional=False)
        self.position = slots.position(stack)
        check_position(self.position, self.layers)
        self.max_length = shortest(self.position, self.layers)
        self.checkpointing = config.checkpoint_activations

    @property
    def copies(self) -> bool:
        """Whether the last cross-attention has weights that can be probabilities."""
        layers = [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
        return bool(layers) and layers[-1].cross_attention.abilities.copies

    def forward(self, x: Tensor, mask: Mask, state: TransformerState) -> Tensor:
        """(B*K, T, D) -> (B*K, T, D)."""
        for layer, args in zip(self.layers, self._beside(mask, state)):
            x = self._run(layer, state, x, *args)
        out: Tensor = self.norm(x)
        return out

    def with_weights(self, x: Tensor, mask: Mask, state: TransformerState) -> tuple[Tensor, Looked]:
        """As `forward`, and what the last layer's cross-attention saw."""
        *below, (last, last_args) = zip(self.layers, self._beside(mask, state))
        for layer, args in below:
            x = self._run(layer, state, x, *args)
        assert isinstance(last, DecoderLayer)
        x, looked = self._run(last.with_weights, state, x, *last_args)
        return self.norm(x), looked

    def _beside(self, mask: Mask, state: TransformerState) -> list[tuple[Any, ...]]:
        """What each layer takes beside its input."""
        source_mask = replace(
            state.source_mask,
            query_positions=mask.query_positions,
            real_queries=mask.real_queries,
        )
        caches: Sequence[Cache | None] = state.caches or [None] * len(self.layers)
        return [
            (mask, self.position.at_layer(number), source, source_mask, cache)
            for number, (source, cache) in enumerate(zip(state.source, caches, strict=True))
        ]

    def _run(self, layer: Callable[..., Any], state: TransformerState, *args: Any) -> Any:
        recompute = self.checkpointing and self.training and torch.is_grad_enabled()
        if recompute and state.caches is None:  # a second pass would write a cache twice
            return checkpoint(layer, *args, use_reentrant=False)
        return layer(*args)
