"""Models and batches of the GPU check."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqattn.attention.alignment import Bahdanau
from seqattn.attention.experts import MixtureOfAttention
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.bigbird import BigBirdKernel
from seqattn.attention.kernels.entmax import EntmaxKernel
from seqattn.attention.kernels.features import PerformerKernel
from seqattn.attention.kernels.fixed import FixedKernel
from seqattn.attention.kernels.linear import LinearKernel
from seqattn.attention.kernels.linformer import LinformerKernel
from seqattn.attention.kernels.lsh import LSHKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.streaming import StreamingKernel
from seqattn.attention.kernels.strided import StridedKernel
from seqattn.attention.kernels.window import SlidingWindowKernel
from seqattn.attention.kernels.xca import XCAKernel
from seqattn.attention.masks import padded_right
from seqattn.data.batch import Batch, collate
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import RecurrentConfig
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.ops.cross_entropy import LossTerms
from seqattn.positions import (
    ALiBiPosition,
    DeBERTaPosition,
    Position,
    RotaryPosition,
    ShawPosition,
    SinusoidalPosition,
    T5Position,
)

SIZE = 64
"""Vocabulary size and width of models that are compared and not timed."""
SMOOTH = LossTerms(label_smoothing=0.1)
Make = Callable[[], Seq2SeqModel]


def heads(kernel: Any, num_heads: int = 8, num_kv_heads: int | None = None) -> Any:
    """Return a factory of multi-head attention."""
    return partial(
        MultiHeadAttention, num_heads=num_heads, num_kv_heads=num_kv_heads or num_heads,
        kernel=kernel,
    )  # fmt: skip


def transformer(
    size: int = SIZE,
    dim: int = SIZE,
    layers: int = 2,
    encoder: Any = None,
    decoder: Any = None,
    position: Any = SinusoidalPosition,
    num_heads: int = 8,
    **shape: Any,
) -> Seq2SeqModel:
    """Build a Transformer over `size` words, by default with multi-head attention."""
    torch.manual_seed(0)
    usual = heads(SoftmaxKernel, num_heads)
    sizes: dict[str, Any] = {"dim": dim, "ffn_dim": 4 * dim, "dropout": 0.0, **shape}
    config = TransformerConfig(encoder_layers=layers, decoder_layers=layers, **sizes)
    own = ([encoder or usual] * layers, [decoder or usual] * layers, [usual] * layers)
    return config.build(size, size, True, Slots(*own, position))


def recurrent(cell: Any) -> Seq2SeqModel:
    """Build Bahdanau's model."""
    torch.manual_seed(0)
    config = RecurrentConfig(dim=SIZE, encoder_dim=SIZE, decoder_dim=SIZE, cell=cell, dropout=0.0)
    return config.build(SIZE, SIZE, True, Bahdanau)


ENCODERS: dict[str, Any] = {
    "mha": heads(SoftmaxKernel),
    "gqa": heads(SoftmaxKernel, num_kv_heads=2),
    "mqa": heads(SoftmaxKernel, num_kv_heads=1),
    "window": heads(partial(SlidingWindowKernel, window=16, global_tokens=2)),
    "strided": heads(partial(StridedKernel, stride=8)),
    "fixed": heads(partial(FixedKernel, stride=8)),
    "bigbird": heads(partial(BigBirdKernel, block_size=8)),
    "lsh": heads(partial(LSHKernel, bucket_size=16)),
    "linformer": heads(LinformerKernel),
    "linear": heads(LinearKernel),
    "performer": heads(PerformerKernel),
    "entmax": heads(EntmaxKernel),
    "xca": heads(XCAKernel),
    "moa": partial(MixtureOfAttention, num_heads=4, num_experts=8, kernel=SoftmaxKernel),
}
_DECODE = (
    "mha",
    "gqa",
    "mqa",
    "window",
    "strided",
    "fixed",
    "linear",
    "performer",
    "entmax",
    "moa",
)
DECODERS = {name: ENCODERS[name] for name in _DECODE}
DECODERS["streaming"] = heads(partial(StreamingKernel, window=16))
POSITIONS = {
    "none": Position, "rope": RotaryPosition, "alibi": ALiBiPosition, "t5": T5Position,
    "shaw": ShawPosition, "deberta": DeBERTaPosition,
}  # fmt: skip
LONG = "long rows"
"""Model that is compared on rows of up to 1,200 tokens."""
MODELS: dict[str, Make] = {
    **{f"encoder {name}": partial(transformer, encoder=one) for name, one in ENCODERS.items()},
    **{
        f"decoder {name}": partial(transformer, decoder=one, position=RotaryPosition)
        for name, one in DECODERS.items()
    },
    **{f"position {name}": partial(transformer, position=one) for name, one in POSITIONS.items()},
    "copy": partial(transformer, copy=True),
    LONG: partial(transformer, encoder=heads(SoftmaxKernel, num_kv_heads=2)),
    "heads of 9": partial(transformer, dim=36, num_heads=4),
    **{f"recurrent {cell}": partial(recurrent, cell) for cell in ("lstm", "gru")},
}
CHOOSING = ("encoder lsh", "encoder moa", "decoder moa")
"""Models with discrete choices that rounding may change, and with them the half-precision loss."""


def batch(rows: int, longest: int, size: int = SIZE, seed: int = 0, even: bool = False) -> Batch:
    """Draw random pairs of `longest` // 2 to `longest` tokens, or all of `longest` if `even`."""
    source = torch.Generator().manual_seed(seed)

    def side() -> list[list[int]]:
        lengths = torch.randint(longest // 2, longest, (rows,), generator=source).tolist()
        lengths = [longest - 1] * rows if even else lengths
        return [[*torch.randint(4, size, (n,), generator=source).tolist(), 3] for n in lengths]

    return collate(side(), side(), list(range(rows)))


def loss_of(model: Seq2SeqModel, pairs: Batch) -> Tensor:
    """Return the loss per token, as in training."""
    with padded_right():
        loss = model.loss(
            pairs.source,
            pairs.target_input,
            pairs.target_output,
            SMOOTH,
            tokens=pairs.target_tokens,
        )
    return loss.smoothed / loss.tokens
