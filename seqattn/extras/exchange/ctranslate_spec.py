"""Conversion of a Transformer to a specification for CTranslate2, a C++ engine for CPU and GPU."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.errors import UserError
from seqattn.extras.exchange.export_checks import Supported, attentions
from seqattn.installation import install
from seqattn.layers.embedding import Embedding
from seqattn.layers.sublayers import GATED, FeedForward, Residual
from seqattn.models.stack import LayerStack
from seqattn.models.transformer import Transformer, TransformerConfig
from seqattn.positions import (
    LearnedPosition,
    Position,
    RotaryPosition,
    ShawPosition,
    SinusoidalPosition,
    T5Position,
)
from seqattn.positions.relative import ShawLayer
from seqattn.tokens import BOS, EOS, UNK

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

LONGEST = 4096
"""Number of positions written for schemes without a maximum length that need a table."""
_TABLES = Position, SinusoidalPosition, LearnedPosition
_POSITIONS = *_TABLES, RotaryPosition, ShawPosition, T5Position
_OLDEST = 4, 7  # the first whose encoders support grouped key heads
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
    "geglu_tanh": "GELUTanh",
}


def ctranslate2() -> Any:
    """Import the package.

    Raises:
        UserError: it is not installed, or too old.
    """
    try:
        import ctranslate2 as package
    except ImportError as error:
        raise UserError(
            f"export and engine=ctranslate2 need CTranslate2 ({error}); {install('export')}"
        ) from error
    version: str = package.__version__
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise UserError(f"CTranslate2 {version} is too old; {install('export')}")
    return package


def longest(model: Transformer) -> int | None:
    """Return the maximum tokens of a source or an output in CTranslate2; None without a limit."""
    positions = model.encoder.position, model.decoder.position
    limits = [position.max_length or LONGEST for position in positions if type(position) in _TABLES]
    return min(limits, default=None)


def ctranslate_spec(
    model: nn.Module, source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> "TransformerSpec":
    """Build the specification that `ctranslate2` saves, in float32 and checked for gaps.

    Args:
        model: a `Transformer` with softmax attention (mha, gqa, mqa), one of the positions none,
            sinusoidal, learned, rope, shaw and t5, and no copying.
        source_pieces, target_pieces: the pieces of all ids.

    Raises:
        UserError: if the model is of another kind, or `ctranslate2` is not installed.
    """
    specs = ctranslate2().specs
    model = _checked(model)
    encoder = _stack(specs.TransformerEncoderSpec, model.encoder, model.config)
    decoder = _stack(specs.TransformerDecoderSpec, model.decoder, model.config)
    _embedding(encoder, encoder.embeddings[0], model.source_embedding)
    _embedding(decoder, decoder.embeddings, model.target_embedding)
    _linear(decoder.projection, model.head.linear.weight, model.head.linear.bias)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.config.layer_norm_epsilon = model.decoder.layers[0].feed.norm.eps
    spec.config.add_source_eos = True
    # an imported vocabulary may have another piece named <s>
    spec.config.bos_token = spec.config.decoder_start_token = target_pieces[BOS]
    spec.config.eos_token, spec.config.unk_token = target_pieces[EOS], target_pieces[UNK]
    spec.register_source_vocabulary([*source_pieces])
    spec.register_target_vocabulary([*target_pieces])
    spec.validate()
    return spec


_SUPPORTED = Supported(
    "CTranslate2",
    _POSITIONS,
    "position=none, sinusoidal, learned, rope, shaw or t5",
    [SoftmaxKernel],
    "attention=mha, gqa or mqa",
)


def _checked(model: nn.Module) -> Transformer:
    """Return the model; raise UserError for features that CTranslate2 lacks."""
    supported = _SUPPORTED.check(model)
    if supported.config.branch_norm:
        raise UserError(
            "CTranslate2 does not support norms of branches; train with model.branch_norm=false"
        )
    if supported.config.output_softcap is not None:
        raise UserError("CTranslate2 has no caps on logits; train with model.output_softcap=null")
    for name, stack in {"encoder": supported.encoder, "decoder": supported.decoder}.items():
        if any(part.kept_heads is not None for part in attentions(stack)):
            raise UserError("CTranslate2 does not support pruned heads; export the original bundle")
        if len({part.num_heads for part in attentions(stack)}) > 1:
            raise UserError(f"CTranslate2 needs the same number of heads in all {name} attentions")
    return supported


def _stack(kind: Any, stack: LayerStack, config: TransformerConfig) -> Any:
    """Build an encoder or a decoder without embeddings. Args: kind: which of the two."""
    parts, position = attentions(stack), stack.position
    heads = parts[0].num_heads
    counts = {part.num_kv_heads for part in parts}
    kv_heads = counts.pop() if len(counts) == 1 else heads  # one number for all layers of a stack
    full_width = all(part.head_dim == part.output.out_features for part in parts)
    if heads == 1 and (isinstance(position, T5Position) or not full_width):
        heads = kv_heads = 2  # CTranslate2 takes one to be as wide as the model and without a bias
    spec = kind(
        len(stack.layers), heads, num_heads_kv=kv_heads, pre_norm=config.pre_norm,
        activation=_activation(config.activation), ffn_glu=config.activation in GATED,
        rms_norm=config.norm == "rmsnorm", layernorm_embedding=config.embedding_norm,
        **_scheme(position),
    )  # fmt: skip
    if config.pre_norm:
        _norm(spec.layer_norm, stack.norm)
    if type(position) in _TABLES:
        indices = torch.arange(position.max_length or LONGEST)
        table = position.embed(torch.zeros(1, len(indices), position.stack.dim), indices)[0]
        spec.position_encodings.encodings = _array(table)
    layer: Any
    for number, (layer_spec, layer) in enumerate(zip(spec.layer, stack.layers, strict=True)):
        own = layer_spec.self_attention
        _attention(own, layer.self_attention, layer.attend, heads, kv_heads, groups=(3, 1))
        _relative(own, position.at_layer(number), heads)
        if hasattr(layer_spec, "attention"):
            cross = layer.cross_attention
            _attention(layer_spec.attention, cross, layer.cross, heads, kv_heads, (1, 2, 1))
        _feedforward(layer_spec.ffn, layer.feedforward, layer.feed)
    return spec


def _activation(name: str) -> Any:
    from ctranslate2.specs.common_spec import Activation

    return Activation[_ACTIVATIONS[name]]


def _scheme(position: Position) -> dict[str, Any]:
    """Return a stack's arguments for its position scheme."""
    from ctranslate2.specs.attention_spec import RotaryScalingType

    if isinstance(position, RotaryPosition):
        rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": position.base}
        if position.scaling != 1:
            rotary["rotary_scaling_type"] = RotaryScalingType.Linear
            rotary["rotary_scaling_factor"] = position.scaling
        return rotary
    return {
        "relative_attention_bias": isinstance(position, T5Position),
        "relative_position": isinstance(position, ShawPosition),
    }


def _relative(spec: Any, position: Position, heads: int) -> None:
    """Set the relative positions of a layer's self-attention with so many heads."""
    if isinstance(position, T5Position):
        spec.queries_scale = np.float32(1)
        table = position.table.weight  # (buckets, H)
        spec.relative_attention_bias = _array(table.expand(-1, heads) if heads == 2 else table)
        spec.relative_attention_max_distance = np.int32(position.max_distance)
    if isinstance(position, ShawLayer):  # CTranslate2 counts j - i where we count i - j
        keys, values = position.keys, position.values
        spec.relative_position_keys = _array(keys.flip(0))
        spec.relative_position_values = _array(
            torch.zeros_like(keys) if values is None else values.flip(0)
        )


def _attention(
    spec: Any,
    attention: MultiHeadAttention,
    residual: Residual,
    heads: int,
    kv_heads: int,
    groups: Sequence[int],
) -> None:
    """Fill a sublayer with `kv_heads` key heads, its projections stacked by `groups`.

    A single head is written twice, and the output leaves the copy out.
    """
    _norm(spec.layer_norm, residual.norm)
    width, times = attention.head_dim, kv_heads // attention.num_kv_heads
    spec.queries_scale = np.float32(width**-0.5)
    query, output = attention.query, attention.output
    assert query is not None
    copies = heads // attention.num_heads
    parts = [(query, copies), (attention.key, times), (attention.value, times), (output, 1)]
    for linear, size in zip(spec.linear, groups, strict=True):
        group, parts = parts[:size], parts[size:]
        weight = torch.cat([_repeated(p.weight, width, n) for p, n in group])
        if group[0][0] is output and copies > 1:
            weight = torch.cat([weight, torch.zeros_like(weight)], dim=1)
        bias = None
        if output.bias is not None:
            bias = torch.cat([_repeated(p.bias, width, n) for p, n in group])
        _linear(linear, weight, bias)


def _repeated(rows: Tensor, width: int, times: int) -> Tensor:
    """Repeat each head's rows: (G*Dh, ...) -> (G*N*Dh, ...)."""
    if times == 1:
        return rows
    return rows.unflatten(0, (-1, width)).repeat_interleave(times, dim=0).flatten(0, 1)


def _feedforward(spec: Any, layer: FeedForward, residual: Residual) -> None:
    _norm(spec.layer_norm, residual.norm)
    names = ["linear_0", "linear_0_noact"][: 2 if layer.gated else 1]
    weights, bias = layer.inner.weight.chunk(len(names)), layer.inner.bias
    biases = [None] * len(names) if bias is None else bias.chunk(len(names))
    for name, *part in zip(names, weights, biases, strict=True):
        _linear(getattr(spec, name), *part)
    _linear(spec.linear_1, layer.outer.weight, layer.outer.bias)


def _embedding(stack: Any, spec: Any, embedding: Embedding) -> None:
    """Fill a table, which CTranslate2 multiplies by sqrt(D), and the norm after it."""
    spec.weight = _array(
        embedding.table.weight * (embedding.scale / embedding.table.embedding_dim**0.5)
    )
    if embedding.norm is not None:
        _norm(stack.layernorm_embedding, embedding.norm)


def _linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        bias = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
        spec.beta = _array(bias)


def _array(x: Tensor) -> Any:
    return x.detach().float().cpu().numpy().copy()  # quantizing writes into it
