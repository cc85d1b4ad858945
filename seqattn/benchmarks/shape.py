"""The shapes that every contestant of a benchmark has."""

from dataclasses import dataclass
from functools import partial

from torch import nn

from seqattn.attention.alignment import AlignmentFactory, Bahdanau, Luong
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.models.recurrent import Recurrent, RecurrentConfig
from seqattn.models.transformer import Slots, Transformer, TransformerConfig
from seqattn.positions import SinusoidalPosition


@dataclass(frozen=True)
class Shape:
    """A pre-norm Transformer with one table for source, target and output.

    Args:
        vocabulary: V, of both sides.
        dim: width D.
        layers: depth of the encoder, and of the decoder.
        ffn_dim: width inside the feed-forward sublayers.
        heads: H, of every attention.
        dropout: share dropped in training, 0 to 1.
        smoothing: label smoothing, 0 to 1.
    """

    vocabulary: int
    dim: int = 128
    layers: int = 4
    ffn_dim: int = 256
    heads: int = 4
    dropout: float = 0.3
    smoothing: float = 0.1


def seqattn_model(shape: Shape) -> Transformer:
    """This package's Transformer of that shape: `attention=mha position=sinusoidal`."""
    attention = partial(
        MultiHeadAttention,
        num_heads=shape.heads,
        num_kv_heads=shape.heads,
        kernel=SoftmaxKernel,
    )
    stack = [attention] * shape.layers
    config = TransformerConfig(
        dim=shape.dim,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        ffn_dim=shape.ffn_dim,
        dropout=shape.dropout,
    )
    slots = Slots(stack, stack, stack, SinusoidalPosition)
    return config.build(shape.vocabulary, shape.vocabulary, True, slots)


RECURRENT: dict[str, AlignmentFactory] = {
    "bahdanau": Bahdanau,
    "luong_general": partial(Luong, score="general"),
    "luong_concat": partial(Luong, score="concat"),
}
"""The alignments of recurrent contestants."""


@dataclass(frozen=True)
class RecurrentShape:
    """LSTMs of one layer, the encoder in two directions, one table for both sides and the output.

    Args:
        vocabulary: V, of both sides.
        dim: width D of everything; even.
        attention: of `RECURRENT`, each in the order it was published in.
        input_feeding: Luong's.
        dropout: share dropped in training, on embeddings and features.
        smoothing: label smoothing, 0 to 1.
    """

    vocabulary: int
    dim: int = 256
    attention: str = "bahdanau"
    input_feeding: bool = False
    dropout: float = 0.3
    smoothing: float = 0.1

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"{self.attention}, fed" if self.input_feeding else self.attention


def recurrent_model(shape: RecurrentShape) -> Recurrent:
    """This package's recurrent model of that shape: `model=rnn`."""
    config = RecurrentConfig(
        dim=shape.dim, input_feeding=shape.input_feeding, dropout=shape.dropout
    )
    return config.build(shape.vocabulary, shape.vocabulary, True, RECURRENT[shape.attention])


def parameters_of(model: nn.Module) -> int:
    """Numbers that training moves, shared ones counted once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
