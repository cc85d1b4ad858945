"""Encoder and decoder layers of a Transformer."""

from dataclasses import dataclass
from typing import Annotated, Protocol

from torch import Tensor, nn

from seqattn.attention.base import AttentionFactory, AttentionOutput, Mixer
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.checking import Dropout, Width
from seqattn.layers.sublayers import Activation, FeedForward, Norm, Residual, make_norm
from seqattn.positions.base import Position, Stack
from seqattn.roles import Role


class MixerFactory(Protocol):
    """Factory of a layer's self-attention, or of a mixer that replaces it."""

    def __call__(self, query_dim: int, memory_dim: int) -> Mixer: ...


@dataclass(frozen=True)
class LayerShape:
    """Settings shared by all layers of a stack.

    Args:
        dim: width D.
        ffn_dim: hidden width of the feed-forward sublayer.
        activation: nonlinearity of the feed-forward sublayer, see `FeedForward`.
        norm: layernorm or rmsnorm.
        pre_norm: normalize before the sublayers (and at the end of each stack) rather than after.
        dropout: share dropped on embeddings and residual branches.
        checkpoint_activations: recompute layers in the backward pass to save memory.
        word_dropout: as in `Embedding`.
        drop_heads: as in `Attention`, for every attention of a stack, including cross-attention.
        layer_drop: as in `LayerStack`.
        bias: add biases in feed-forward sublayers and layer norms; those of attentions have a
            setting of their own.
        branch_norm: also normalize the output of each sublayer (sandwich norm, Ding et al. 2021,
            arXiv 2105.13290, section 2.4).
    """

    dim: Width = 256
    ffn_dim: Width = 1024
    activation: Activation = "relu"
    norm: Norm = "layernorm"
    pre_norm: bool = True
    dropout: Dropout = 0.1
    checkpoint_activations: Annotated[bool, Role.NOTE] = False
    word_dropout: Dropout = 0.0
    drop_heads: Dropout = 0.0
    layer_drop: Dropout = 0.0
    bias: bool = True
    branch_norm: bool = False

    def make_norm(self) -> nn.Module:
        """Create a norm."""
        return make_norm(self.norm, self.dim, self.bias)

    def residual(self) -> Residual:
        """Create a residual connection."""
        branch_norm = self.make_norm() if self.branch_norm else None
        return Residual(self.make_norm(), self.pre_norm, self.dropout, branch_norm)

    def feedforward(self) -> FeedForward:
        """Create a feed-forward sublayer."""
        return FeedForward(self.dim, self.ffn_dim, self.activation, self.bias)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each on a residual branch.

    Args:
        shape: settings of the stack.
        self_attention: factory of the self-attention.
    """

    def __init__(self, shape: LayerShape, self_attention: MixerFactory) -> None:
        super().__init__()
        self.self_attention = self_attention(query_dim=shape.dim, memory_dim=shape.dim)
        self.attend = shape.residual()
        self.feedforward = shape.feedforward()
        self.feed = shape.residual()

    def forward(self, x: Tensor, mask: Mask, position: Position) -> Tensor:
        """Encode x, (B, S, D) -> (B, S, D)."""
        x = self.attend(x, lambda h: self.self_attention.mix(h, mask, position))
        return self.feed(x, self.feedforward)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, feed-forward, on residual branches.

    Args:
        shape: settings of the stack.
        memory_dim: width of the encoder's output.
        self_attention: factory of the self-attention.
        cross_attention: factory of the cross-attention.
    """

    def __init__(
        self,
        shape: LayerShape,
        memory_dim: int,
        self_attention: MixerFactory,
        cross_attention: AttentionFactory,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention(query_dim=shape.dim, memory_dim=shape.dim)
        self.attend = shape.residual()
        self.cross_attention = cross_attention(query_dim=shape.dim, memory_dim=memory_dim)
        self.cross = shape.residual()
        self.feedforward = shape.feedforward()
        self.feed = shape.residual()
        self.no_position = Position(Stack(shape.dim, 1))

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        position: Position,
        source: KeysValues,
        source_mask: Mask,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, AttentionOutput]:
        """Decode tokens, attending to the source.

        Args:
            x: (B*K, T, D).
            mask: mask of self-attention.
            position: position scheme of self-attention.
            source: the source's keys and values, from `cross_attention.project`.
            source_mask: mask of cross-attention.
            cache: the past of self-attention, or None.
            need_weights: also return the weights of cross-attention.

        Returns:
            Outputs (B*K, T, D), and the output of cross-attention.
        """
        x = self.attend(x, lambda h: self.self_attention.mix(h, mask, position, cache))
        attended: AttentionOutput = self.cross_attention(
            self.cross.enter(x), source, source_mask, self.no_position, need_weights=need_weights
        )
        x = self.cross.leave(x, attended.output)
        return self.feed(x, self.feedforward), attended
