"""Attention rollout from the target down to the tokens that were read."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation, Method
from seqattn.extras.explain.explanations.passes import (
    Layers,
    run_transformer,
    shared_out,
    why_no_layers,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Transformer


class DecoderMixing(NamedTuple):
    """Mixing of a decoder layer; a row of `cross` and `residual` together sums to 1."""

    own: Tensor
    """(B, T, T) shares of the layer's inputs in the output of self-attention."""
    cross: Tensor
    """(B, T, S) shares of the memory in the output of cross-attention."""
    residual: Tensor
    """(B, T) share of the input of cross-attention in its output."""


class Mixing(NamedTuple):
    """Mixing of the layers of a Transformer, first layers first."""

    encoder: Sequence[Tensor]
    """(B, S, S), rows sum to 1."""
    decoder: Sequence[DecoderMixing]

    def product(self) -> tuple[Tensor, Tensor]:
        """Return shares of source tokens (B, T, S) and of target tokens read (B, T, T)."""
        prefix = torch.eye(self.decoder[0].own.shape[1]).to(self.decoder[0].own)
        memory = torch.eye(self.decoder[0].cross.shape[2]).to(prefix)
        for matrix in self.encoder:
            memory = matrix @ memory
        source = torch.zeros_like(self.decoder[0].cross)
        for own, cross, residual in self.decoder:
            source = residual[..., None] * (own @ source) + cross @ memory
            prefix = residual[..., None] * (own @ prefix)
        return source, prefix


class Rollout(Method):
    """Product of the layers' weights, with residual connections as the identity (eq. 1).

    Extended to the decoder: a layer's self-attention mixes the target tokens read, then its
    cross-attention mixes in the encoder's product.
    """

    name: ClassVar[str] = "rollout"
    cites: ClassVar[str] = "Abnar and Zuidema 2020, arXiv 2005.00928"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_layers(model)

    def mixing(self, layers: Layers) -> Mixing:
        """Return half of each weight's mean over heads, with the other half for the residual."""
        encoder = [_with_residual(branch.parts.shares) for branch in layers.encoder]
        decoder = []
        for branches in layers.decoder:
            cross = branches.cross.parts.shares
            total = 1 + cross.sum(dim=2)  # 1 if a query sees no key
            self_attention = _with_residual(branches.own.parts.shares)
            decoder.append(DecoderMixing(self_attention, cross / total[..., None], 1 / total))
        return Mixing(encoder, decoder)

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        assert isinstance(model, Transformer)
        mixing = self.mixing(run_transformer(model, source, target))
        return shared_out(target, *mixing.product())


def _with_residual(shares: Tensor) -> Tensor:
    mixed = shares + torch.eye(shares.shape[1]).to(shares)
    return mixed / mixed.sum(dim=2, keepdim=True)
