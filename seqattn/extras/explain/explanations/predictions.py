"""Log-probabilities of given targets, and masking of padding."""

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, PAD

ROWS = 64
"""Sentences per forward pass."""


def decoder_input(target: Tensor) -> Tensor:
    """Return decoder inputs for targets (B, T): the begin mark, then all but the last token."""
    return torch.cat((torch.full_like(target[:, :1], BOS), target[:, :-1]), dim=1)


@torch.no_grad()
def log_probabilities(
    model: Seq2SeqModel,
    source: Tensor,
    prefix: Tensor,
    target: Tensor,
    instead: Tensor | None = None,
) -> Tensor:
    """Return the log-probability (B, T) of each target token, in nats.

    Args:
        model: in eval mode.
        source: (B, S).
        prefix: (B, T) decoder input.
        target: (B, T) next token at each position.
        instead: (B, T) tokens whose log-probabilities are subtracted; None for none.
    """
    state = model.start(model.encode(source), cached=False)
    log_probs = model.log_probabilities(prefix, state).log_probabilities
    own = log_probs.gather(2, target[..., None])[..., 0]
    return own if instead is None else own - log_probs.gather(2, instead[..., None])[..., 0]


def without_padding(explanation: Explanation, source: Tensor, target: Tensor) -> Explanation:
    """Return the explanation with zeros at padding of source and target."""
    real = target != PAD
    visible = torch.ones_like(explanation.prefix, dtype=torch.bool).tril()
    return Explanation(
        explanation.source.masked_fill(~(real[:, :, None] & (source != PAD)[:, None]), 0.0),
        explanation.prefix.masked_fill(~(real[:, :, None] & visible), 0.0),
        explanation.rest.masked_fill(~real, 0.0),
    )
