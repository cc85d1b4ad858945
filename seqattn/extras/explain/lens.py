"""Lens: what the decoder would predict after each of its layers."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.models.base import Seq2SeqModel
from seqattn.models.head import DecoderOutput
from seqattn.models.transformer import Transformer


class Lens(NamedTuple):
    """Predictions from the decoder's input (row 0) and from each layer's output; L layers."""

    probability: Tensor
    """(B, L+1, T) of the target token."""
    rank: Tensor
    """(B, L+1, T) of the target token, 1 for the likeliest."""
    likeliest: Tensor
    """(B, L+1, T) ids."""


def why_no_lens(model: Seq2SeqModel) -> str | None:
    """Return why a model has no lens; None if it has one."""
    if not isinstance(model, Transformer):
        return "the lens reads the layers of a Transformer's decoder"
    if model.head.needs_weights:
        return "a model that copies predicts from its last cross-attention, too"
    return None


@torch.no_grad()
def lens(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Lens:
    """Return what the last norm and the output layer make of each layer's states.

    Those layers were trained for the last states only, so early rows are a lower bound of what
    the states know (the logit lens, nostalgebraist 2020; Belrose et al. 2023, arXiv 2303.08112).

    Args:
        model: in eval mode.
        source: (B, S) ids, end mark included, padded with 0.
        target: (B, T) ids to predict, end mark included, padded with 0 on the right; values there
            mean nothing.

    Raises:
        UserError: if `why_no_lens` has a reason.
    """
    reason = why_no_lens(model)
    if reason is not None:
        raise UserError(f"there is no lens: {reason}")
    assert isinstance(model, Transformer)
    states: list[Tensor] = []

    def keep(module: Any, args: tuple[Any, ...]) -> None:
        states.append(args[0])

    decoder = model.decoder
    hooks = [part.register_forward_pre_hook(keep) for part in (*decoder.layers, decoder.norm)]
    try:
        state = model.start(model.encode(source), cached=False)
        model.features(decoder_input(target), state)
    finally:
        for hook in hooks:
            hook.remove()
    rows = []
    for x in states:
        scores = model.head.log_probabilities(DecoderOutput(decoder.norm(x)), state.source_tokens)
        own = scores.gather(2, target[..., None])
        rows.append((own[..., 0].exp(), (scores > own).sum(dim=2) + 1, scores.argmax(dim=2)))
    return Lens(*(torch.stack(parts, dim=1) for parts in zip(*rows, strict=True)))
