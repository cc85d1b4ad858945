"""A Transformer and its vocabularies as one document, which the page computes with."""

import base64
from typing import Any

import torch
from torch import Tensor

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle.bundle import Bundle
from seqattn.data.foreign_models import BPE, NORMAL, ForeignModel
from seqattn.errors import UserError
from seqattn.inputs import read_bytes
from seqattn.models.head import Head
from seqattn.models.stack import LayerStack
from seqattn.models.transformer import Transformer
from seqattn.positions import LearnedPosition, Position, RotaryPosition, SinusoidalPosition
from seqattn.tokens import RESERVED

LONGEST = 100
"""Positions of the page, for the tokens of a sentence and of its longest output."""
_MAX_PARAMETERS = 30_000_000
"""Parameters of the largest model, whose page has 160 MB."""
_POSITIONS = Position, RotaryPosition, SinusoidalPosition, LearnedPosition
_NEEDED = {"norm": "layernorm", "pre_norm": True, "branch_norm": False, "activation": "relu"}
_NEEDED |= {"embedding_norm": False, "output_softcap": None}
"""Settings of a model that the page's arithmetic has; the others may have any value."""


def model_document(bundle: Bundle) -> dict[str, Any]:
    """Return the weights of a bundle in float32, its shape, vocabularies and length limit.

    Raises:
        UserError: the page cannot compute a part of the bundle.
    """
    if bundle.config.get("quantize"):
        raise UserError(f"{bundle.path} is quantized; use the original bundle")
    model = _checked(bundle.model)
    tensors, blob, size = {}, [], 0
    with torch.no_grad():
        # tables that are shared have the first of their names; positions are given as vectors
        weights = {name: one for name, one in model.named_parameters() if ".position." not in name}
        named = {**weights, **_added_positions(model)}
    for name, tensor in named.items():
        tensors[name] = [size, *tensor.shape]
        blob.append(tensor.detach().float().contiguous().numpy().astype("<f4").tobytes())
        size += tensor.numel()
    limit, stacks = bundle.search("greedy").limit, (model.encoder, model.decoder)
    longest = min(LONGEST, *(stack.max_length or LONGEST for stack in stacks))
    return {
        "dims": [stack.position.stack.dim for stack in stacks],
        "attentions": {
            "encoder": _shapes(model.encoder, "self_attention"),
            "decoder": _shapes(model.decoder, "self_attention"),
            "cross": _shapes(model.decoder, "cross_attention"),
        },
        "scales": [model.source_embedding.scale, model.target_embedding.scale],
        "vocabularies": _vocabularies(bundle),
        "limit": {"ratio": limit.ratio, "extra": limit.extra, "minimum": limit.minimum},
        "most": int((longest - limit.extra) / limit.ratio) - 1,
        "tensors": tensors,
        "weights": base64.b64encode(b"".join(blob)).decode("ascii"),
    }


def _checked(model: Any) -> Transformer:
    if type(model) is not Transformer or type(model.head) is not Head:
        kind = type(model).__name__
        raise UserError(f"walkthrough supports only Transformers without copying, got a {kind}")
    for key, value in _NEEDED.items():
        if getattr(model.config, key) != value:
            own, needed = (str(v).lower() for v in (getattr(model.config, key), value))
            raise UserError(
                f"walkthrough does not support model.{key}={own}; train with model.{key}={needed}"
            )
    for stack in (model.encoder, model.decoder):
        if type(stack.position) not in _POSITIONS:
            kind = type(stack.position).__name__
            raise UserError(f"walkthrough does not support {kind}; train with position=rope")
        if not len(stack.layers):
            raise UserError("walkthrough needs at least one layer on each side")
    if (size := sum(parameter.numel() for parameter in model.parameters())) > _MAX_PARAMETERS:
        raise UserError(f"walkthrough holds at most {_MAX_PARAMETERS:,} parameters, got {size:,}")
    for name, part in model.named_modules():
        if name.endswith("_attention"):
            usual = type(part) is MultiHeadAttention and type(part.kernel) is SoftmaxKernel
            if not usual or part.key_norm is not None or part.kept_heads is not None:
                raise UserError(
                    f"walkthrough does not support {name}; train with attention=mha, gqa or mqa, "
                    "all heads, and attention.qk_norm=false"
                )
    return model


def _added_positions(model: Transformer) -> dict[str, Tensor]:
    """Return what each side adds to embeddings, (LONGEST, D), if it adds positions."""
    tables = {}
    for side, stack in (("source", model.encoder), ("target", model.decoder)):
        if "embed" in stack.position.hooks:
            positions = torch.arange(min(LONGEST, stack.max_length or LONGEST))
            zeros = torch.zeros(1, len(positions), stack.position.stack.dim)
            tables[f"{side}_positions"] = stack.position.embed(zeros, positions)[0]
    return tables


def _shapes(stack: LayerStack, name: str) -> list[dict[str, Any]]:
    """Return the heads, score scale and rotation of a slot, for each layer."""
    shapes: list[dict[str, Any]] = []
    position = stack.position
    for layer in stack.layers:
        attention: MultiHeadAttention = getattr(layer, name)
        width, frequencies = attention.head_dim, []
        if name == "self_attention" and isinstance(position, RotaryPosition):
            halves = range(0, width, 2)
            frequencies = [position.base ** (-n / width) / position.scaling for n in halves]
        shape: dict[str, Any] = {
            "heads": attention.num_heads,
            "groups": attention.num_kv_heads,
            "width": width,
        }
        shapes.append(shape | {"scale": position.score_scale(width), "frequencies": frequencies})
    return shapes


def _vocabularies(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the pieces of the source's and the target's vocabulary, one if they are equal."""
    tokenizer = bundle.tokenizer
    if tokenizer.source_begin or tokenizer.target_begin or tokenizer.truecaser is not None:
        raise UserError("walkthrough does not support language codes or truecasing")
    if tokenizer.file_names[0].endswith(".json"):
        raise UserError("walkthrough does not support byte-level vocabularies")
    vocabularies = []
    for file, size in zip(tokenizer.file_names, (tokenizer.source_size, tokenizer.target_size)):
        model = ForeignModel.read(read_bytes(bundle.path / file), bundle.path / file)
        pieces = model.pieces[:size]
        unsupported = [piece.name for piece in model.pieces[RESERVED:] if piece.kind != NORMAL]
        if unsupported or model.normalizer.rules or model.normalizer.folds:
            raise UserError(
                "walkthrough supports vocabularies of plain pieces; train with tokenizer=bpe or "
                "unigram, tokenizer.normalization=identity, byte_fallback=false and no symbols"
            )
        kind: dict[str, Any] = {"algorithm": "bpe" if model.algorithm == BPE else "unigram"}
        kind |= {"prefix": model.normalizer.prefix, "pieces": [piece.name for piece in pieces]}
        vocabularies.append(kind | {"scores": [piece.score for piece in pieces]})
    return vocabularies
