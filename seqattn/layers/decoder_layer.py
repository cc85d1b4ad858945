"""One layer of a Transformer's decoder."""

from torch import Tensor, nn

from seqattn.attention.base import AttentionFactory, AttentionOutput
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.layers.encoder_layer import LayerShape, MixerFactory
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
        """Decodes tokens over the source.

        Args:
            x: (B*K, T, D).
            mask: of self-attention.
            position: of self-attention.
            source: the source's keys and values, as `cross_attention.project` makes them.
            source_mask: of cross-attention.
            cache: the past of self-attention; None for none.
            need_weights: whether the weights of cross-attention are asked for.

        Returns:
            (B*K, T, D), and what cross-attention gave.
        """
        attended: list[AttentionOutput] = []

        def attend_to_source(h: Tensor) -> Tensor:
            found = self.cross_attention(
                h, source, source_mask, self.no_position, need_weights=need_weights
            )
            attended.append(found)
            return attended[0].output

        x = self.attend(x, lambda h: self.self_attention.mix(h, mask, position, cache))
        x = self.cross(x, attend_to_source)
        return self.feed(x, self.feedforward), attended[0]
