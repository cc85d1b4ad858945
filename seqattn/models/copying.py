"""Copying: a target token may be taken from the source instead of the vocabulary."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.errors import UserError

RESERVED = 4
"""Ids below this one (padding, unknown, begin and end) stand for no text, so none is copied."""


def check_joint(joint: bool) -> None:
    """Refuses to copy between two vocabularies.

    Raises:
        UserError: where source and target have a vocabulary each.
    """
    if not joint:
        raise UserError(
            "model.copy=true needs one vocabulary for both sides; set tokenizer.joint=true, or "
            "model.copy=false"
        )


class SourceWords(NamedTuple):
    """What of B sources can be copied, made ready once for all steps."""

    ids: Tensor
    """(B, S)."""
    first: Tensor
    """(B, S) the first place of each source that holds the same token."""
    text: Tensor
    """(B, S) bool, True where a token is text."""

    @classmethod
    def of(cls, ids: Tensor) -> "SourceWords":
        """Args: ids: (B, S), padded on either side."""
        same = ids[:, :, None] == ids[:, None]
        return cls(ids, same.byte().argmax(dim=2), ids >= RESERVED)

    def keep(self, sentences: Tensor) -> "SourceWords":
        """Those of some sentences. Args: sentences: (B',) rows."""
        return SourceWords(*(part.index_select(0, sentences) for part in self))


class Mixture(NamedTuple):
    """How generating and copying share a token's probability; all in nats, in float32 at least."""

    generate: Tensor
    """(B*K, T) log-probability that the vocabulary speaks."""
    copy: Tensor
    """(B*K, T, S) log-probability of copying the token that stands at a place: in all of its
    places together at its first, -inf at the others."""
    ids: Tensor
    """(B*K, T, S) the source's tokens."""

    def rows(self, chosen: Tensor) -> "Mixture":
        """Those of N target tokens. Args: chosen: (B*K, T) bool."""
        return Mixture(*(part[chosen] for part in self))


class Copying(nn.Module):
    """The pointer-generator (See et al. 2017, arXiv 1704.04368, eq. 8 and 9).

    P(w) = (p + (1 - p) u) P_vocab(w) + (1 - p) sum of a_i over the places i with x_i = w

    over one vocabulary of both sides. a are the weights of the last cross-attention, the mean of
    its heads; p = sigmoid(W [context; state; input word] + b). u is the weight on what is no text,
    such as the source's end: nothing is copied from there, and a model that looks there lets the
    vocabulary speak (as the sentinel of Merity et al. 2017, arXiv 1609.07843). So the end's
    probability is the vocabulary's alone; with u = 0 this is eq. 9.

    Costs T * S numbers beside the logits, and S^2 bits a source.

    Args:
        evidence_dim: width of what the gate reads.
    """

    def __init__(self, evidence_dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(evidence_dim, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def mixture(self, weights: Tensor, evidence: Tensor, words: SourceWords) -> Mixture:
        """How each target token is shared between generating and copying.

        Args:
            weights: (B*K, T, S), each query's sum to 1, or to 0 with nothing to look at; the beams
                of a sentence next to each other.
            evidence: (B*K, T, evidence_dim).
            words: of B sources.
        """
        gate = self.gate(evidence)[..., 0]
        wide = torch.promote_types(gate.dtype, torch.float32)
        gate, weights = gate.to(wide), weights.to(wide)
        ids, first, text = (
            part.repeat_interleave(len(weights) // len(part), dim=0)[:, None].expand_as(weights)
            for part in words
        )  # (B, S) -> (B*K, T, S)
        idle = weights.masked_fill(text, 0.0).sum(dim=-1)
        idle = idle + (weights.sum(dim=-1) == 0)  # nothing to look at
        mass = torch.zeros_like(weights).scatter_add(2, first, weights.masked_fill(~text, 0.0))
        copies = F.logsigmoid(-gate)
        share = torch.logaddexp(F.logsigmoid(gate), copies + _log(idle))
        copied = copies[..., None] + _log(mass)
        return Mixture(share, copied, ids)


def _log(x: Tensor) -> Tensor:
    """log x of probabilities, -inf without a gradient where x is 0 or hardly a number."""
    least = torch.finfo(x.dtype).tiny
    return torch.where(x >= least, x.clamp(min=least).log(), -torch.inf)


def mixed(logits: Tensor, mixture: Mixture) -> Tensor:
    """Log-probabilities (B*K, T, V) of the mixture, where logits (B*K, T, V) are the vocabulary's.

    In float32 at least.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    scores = logits.log_softmax(dim=-1, dtype=wide) + mixture.generate[..., None]
    own = scores.gather(-1, mixture.ids)
    return scores.scatter_add(-1, mixture.ids, gain(own, mixture.copy))


def gain(own: Tensor, copied: Tensor) -> Tensor:
    """How much a token's log-probability rises by being copied too: log(1 + copied / own).

    Args:
        own: log-probability of generating it.
        copied: log-probability of copying it, of the same shape; -inf where it cannot be.
    """
    return torch.logaddexp(torch.zeros_like(own), copied - own)
