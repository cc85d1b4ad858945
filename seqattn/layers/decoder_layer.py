"""One layer of a Transformer's decoder."""

from torch import Tensor, nn

from seqattn.attention.base import AttentionFactory, Looked
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.layers.encoder_layer import LayerShape
from seqattn.positions.base import Position, Stack


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, feed-forward, on residual branches.

    Args:
        shape: widths and choices of the stack.
        memory_dim: width of the encoder's output.
        self_attention: makes the self-attention.
        cross_attention: makes the cross-attention.
    """

    def __init__(
        self,
        shape: LayerShape,
        memory_dim: int,
        self_attention: AttentionFactory,
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
        cache: Cache | None,
    ) -> Tensor:
        """Decodes (B*K, T, D) over the source's keys and values (B, G, S, Dh): (B*K, T, D)."""
        own, cross = self.self_attention, self.cross_attention
        x = self.attend(x, lambda h: own(h, own.project(h), mask, position, cache))
        x = self.cross(x, lambda h: cross(h, source, source_mask, self.no_position))
        out: Tensor = self.feed(x, self.feedforward)
        return out

    def with_weights(
        self,
        x: Tensor,
        mask: Mask,
        position: Position,
        source: KeysValues,
        source_mask: Mask,
        cache: Cache | None,
    ) -> tuple[Tensor, Looked]:
        """As `forward`, and what cross-attention saw."""
        own, cross = self.self_attention, self.cross_attention
        looked: list[Looked] = []

        def look(h: Tensor) -> Tensor:
            looked.append(cross.with_weights(h, source, source_mask, self.no_position))
            return looked[0].output

        x = self.attend(x, lambda h: own(h, own.project(h), mask, position, cache))
        x = self.cross(x, look)
        return self.feed(x, self.feedforward), looked[0]
