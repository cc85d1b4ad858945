"""One layer of a Transformer's encoder."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from seqattn.attention.base import Mixer
from seqattn.attention.masks import Mask
from seqattn.layers.feedforward import Activation, FeedForward
from seqattn.layers.norm import Norm, Residual
from seqattn.positions.base import Position


class MixerFactory(Protocol):
    """Makes a layer's own self-attention, or what stands in its place."""

    def __call__(self, query_dim: int, memory_dim: int) -> Mixer: ...


@dataclass(frozen=True)
class LayerShape:
    """What every layer of a stack has in common.

    Args:
        dim: width D.
        ffn_dim: width between the two matrices of the feed-forward sublayer.
        activation: relu, gelu or swiglu.
        norm: layernorm or rmsnorm.
        pre_norm: whether norms stand before their sublayers.
        dropout: share dropped on every residual branch.
    """

    dim: int
    ffn_dim: int
    activation: Activation
    norm: Norm
    pre_norm: bool
    dropout: float

    def residual(self) -> Residual:
        """A residual connection of this shape."""
        return Residual(self.dim, self.norm, self.pre_norm, self.dropout)

    def feedforward(self) -> FeedForward:
        """A feed-forward sublayer of this shape."""
        return FeedForward(self.dim, self.ffn_dim, self.activation)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each on a residual branch.

    Args:
        shape: widths and choices of the stack.
        self_attention: makes the self-attention.
    """

    def __init__(self, shape: LayerShape, self_attention: MixerFactory) -> None:
        super().__init__()
        self.self_attention = self_attention(query_dim=shape.dim, memory_dim=shape.dim)
        self.attend = shape.residual()
        self.feedforward = shape.feedforward()
        self.feed = shape.residual()

    def forward(self, x: Tensor, mask: Mask, position: Position) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = self.attend(x, lambda h: self.self_attention.mix(h, mask, position))
        out: Tensor = self.feed(x, self.feedforward)
        return out
