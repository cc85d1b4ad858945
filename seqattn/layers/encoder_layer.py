"""One layer of a Transformer's encoder."""

from dataclasses import dataclass

from torch import Tensor, nn

from seqattn.attention.base import AttentionFactory
from seqattn.attention.masks import Mask
from seqattn.layers.feedforward import FeedForward
from seqattn.layers.norm import Residual
from seqattn.positions.base import Position


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
    activation: str
    norm: str
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
        attention: makes the self-attention.
    """

    def __init__(self, shape: LayerShape, attention: AttentionFactory) -> None:
        super().__init__()
        self.self_attention = attention(query_dim=shape.dim, memory_dim=shape.dim)
        self.attend = shape.residual()
        self.feedforward = shape.feedforward()
        self.feed = shape.residual()

    def forward(self, x: Tensor, mask: Mask, position: Position) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        attention = self.self_attention
        x = self.attend(x, lambda h: attention(h, attention.project(h), mask, position))
        out: Tensor = self.feed(x, self.feedforward)
        return out
