"""Transformers: this package's, and one written around PyTorch's."""

import warnings
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.checking import Depth, Dropout, Width
from seqattn.models.transformer import Slots, Transformer, TransformerConfig
from seqattn.positions import SinusoidalPosition
from seqattn.positions.base import Stack
from seqattn.tokens import PAD

LONGEST = 512
"""Number of positions in contestants that have a table of them."""


@dataclass(frozen=True)
class Shape:
    """A pre-norm Transformer with one table for source, target and output.

    Args:
        vocabulary: V, of both sides.
        dim: width D.
        layers: depth of the encoder, and of the decoder.
        ffn_dim: width inside the feed-forward sublayers.
        heads: heads H of every attention.
        dropout: share dropped in training.
    """

    vocabulary: int
    dim: Width = 128
    layers: Depth = 4
    ffn_dim: Width = 256
    heads: Width = 4
    dropout: Dropout = 0.3


def own_transformer(shape: Shape) -> Transformer:
    """Build this package's Transformer of that shape: `attention=mha position=sinusoidal`."""
    dim, layers, heads = shape.dim, shape.layers, shape.heads
    mha = partial(MultiHeadAttention, num_heads=heads, num_kv_heads=heads, kernel=SoftmaxKernel)
    config = TransformerConfig(
        dim=dim, encoder_layers=layers, decoder_layers=layers, ffn_dim=shape.ffn_dim,
        dropout=shape.dropout,
    )  # fmt: skip
    slots = Slots([mha] * layers, [mha] * layers, [mha] * layers, SinusoidalPosition)
    return config.build(shape.vocabulary, shape.vocabulary, True, slots)


def parameters_of(model: nn.Module) -> int:
    """Count trainable parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


class TiedEmbedding(nn.Embedding):
    """One table (V, D) for source, target and output, as in all contestants."""

    def __init__(self, vocabulary: int, dim: int) -> None:
        super().__init__(vocabulary, dim)
        nn.init.normal_(self.weight, std=dim**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (...) to vectors (..., D) of unit variance."""
        return super().forward(ids) * self.embedding_dim**0.5

    def logits(self, features: Tensor) -> Tensor:
        """Map features (..., D) to logits (..., V)."""
        return nn.functional.linear(features, self.weight)


class PlainTransformer(nn.Module):
    """Handwritten model around `torch.nn.Transformer`.

    It also applies dropout to attention weights and inside the feed-forward sublayers; ours only to
    embeddings and residual branches.
    """

    positions: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = TiedEmbedding(shape.vocabulary, shape.dim)
        warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
        self.transformer = nn.Transformer(
            shape.dim, shape.heads, shape.layers, shape.layers, shape.ffn_dim, shape.dropout,
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.dropout = nn.Dropout(shape.dropout)
        sinusoids = SinusoidalPosition(Stack(shape.dim, shape.heads))
        table = sinusoids.embed(torch.zeros(LONGEST, shape.dim), torch.arange(LONGEST))
        self.register_buffer("positions", table, persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids: (B, T) -> (B, T, D)."""
        out: Tensor = self.dropout(self.embedding(ids) + self.positions[: ids.shape[1]])
        return out

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) of complete targets (B, T), begin first, given sources (B, S)."""
        steps = target.shape[1]
        later = torch.triu(torch.ones(steps, steps, dtype=torch.bool, device=target.device), 1)
        features = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=later,
            src_key_padding_mask=source == PAD, tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )  # fmt: skip
        return self.embedding.logits(features)
