"""Teacher-forced pass of a model, with inputs and outputs of its attentions."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import capture
from seqattn.extras.explain.explanations.base import Explanation
from seqattn.extras.explain.explanations.decomposition import Decomposition, can_open, decomposed
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.layers.sublayers import Residual
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.transformer import Transformer
from seqattn.tokens import PAD


@dataclass(frozen=True)
class Branch:
    """Attention on a residual connection."""

    parts: Decomposition
    x: Tensor
    """(B, T, D) the residual input."""
    residual: Residual

    @property
    def joined(self) -> Tensor:
        """(B, T, D) output of the branch."""
        return self.residual.leave(self.x, self.parts.output)


class DecoderBranches(NamedTuple):
    """Attentions of a decoder layer."""

    own: Branch
    cross: Branch


class Layers(NamedTuple):
    """Outputs and attentions of a Transformer's layers for given sources and targets."""

    encoder: list[Branch]
    decoder: list[DecoderBranches]
    logits: Tensor
    """(B, T, V)."""


class Aligned(NamedTuple):
    """Output and alignment of a recurrent model for given sources and targets."""

    calls: list[Tensor]
    """Weights (B, 1, T', S), as in `capture`."""
    annotations: Tensor
    """(B, S, M)."""
    logits: Tensor
    """(B, T, V)."""

    @property
    def weights(self) -> Tensor:
        """(B, T, S)."""
        return torch.cat(self.calls, dim=2)[:, 0]


def run_transformer(model: Transformer, source: Tensor, target: Tensor) -> Layers:
    """Read sources (B, S) and predict targets (B, T)."""
    inputs: dict[nn.Module, Tensor] = {}

    def keep(layer: nn.Module, args: tuple[Any, ...]) -> None:
        inputs[layer] = args[0]

    with ExitStack() as stack:
        parts = stack.enter_context(decomposed(model))
        for layer in (*model.encoder.layers, *model.decoder.layers):
            stack.enter_context(layer.register_forward_pre_hook(keep))
        logits = model(source, decoder_input(target))

    def branch_of(name: str, layer: nn.Module) -> Branch:
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        return Branch(parts[f"{name}.self_attention"], inputs[layer], layer.attend)

    encoder = [branch_of(f"encoder.layers.{n}", one) for n, one in enumerate(model.encoder.layers)]
    decoder = []
    for n, layer in enumerate(model.decoder.layers):
        name = f"decoder.layers.{n}"
        first = branch_of(name, layer)
        cross = Branch(parts[f"{name}.cross_attention"], first.joined, layer.cross)
        decoder.append(DecoderBranches(first, cross))
    return Layers(encoder, decoder, logits)


def run_recurrent(model: Recurrent, source: Tensor, target: Tensor) -> Aligned:
    """Run a recurrent model; otherwise as `run_transformer`."""
    with capture(model) as maps:
        memory = model.encode(source)
        state = model.start(memory, cached=False)
        logits = model.decode(decoder_input(target), state)
    return Aligned(maps["decoder.cross_attention"], state.source.values, logits)


def run_cross(model: Transformer, source: Tensor, target: Tensor) -> list[Decomposition]:
    """Return the cross-attentions only, first layer first. Args: as `run_transformer`."""
    with decomposed(model) as parts:
        model(source, decoder_input(target))
    return [parts[f"decoder.layers.{n}.cross_attention"] for n in range(len(model.decoder.layers))]


def why_no_cross(model: Seq2SeqModel) -> str | None:
    """Return why there are no weights from target to source; None if there are."""
    if isinstance(model, Recurrent):
        return None if model.has_weights else "this recurrent model has no attention"
    if not isinstance(model, Transformer):
        kind = type(model).__name__
        return f"it supports Transformers and recurrent models, got {kind}"
    if not model.decoder.layers:
        return "the decoder has no layers and therefore no attention"
    return _without_weights(model, "cross_attention")


def why_no_layers(model: Seq2SeqModel) -> str | None:
    """Return why weights cannot be followed through all layers; None if they can."""
    if isinstance(model, Recurrent):
        return (
            "the states of a recurrent model mix the tokens that they have read, so attention "
            "weights cannot be traced to single tokens"
        )
    return why_no_cross(model) or _without_weights(model, "self_attention")


def _without_weights(model: nn.Module, slot: str) -> str | None:
    lacking = [
        f"{name} ({getattr(module, 'name', type(module).__name__)})"
        for name, module in model.named_modules()
        if name.endswith(f".{slot}") and not can_open(module)
    ]
    return f"no weights over keys make up the output of {', '.join(lacking)}" if lacking else None


def shared_out(target_ids: Tensor, source: Tensor, prefix: Tensor | None = None) -> Explanation:
    """Build an explanation whose rows add up to 1, and are 0 on padding.

    Args:
        target_ids: (B, T).
        source: (B, T, S) shares of source tokens, 0 on padding.
        prefix: (B, T, T) shares of the target tokens read; None for zeros.
    """
    real = (target_ids != PAD).to(source.dtype)
    if prefix is None:
        prefix = source.new_zeros(*target_ids.shape, target_ids.shape[1])
    rest = 1 - source.sum(dim=2) - prefix.sum(dim=2)
    rows = real[..., None]
    return Explanation(source * rows, prefix * rows, rest.clamp(min=0) * real)
