"""ALTI+: layer-wise contributions, by how close each token's part is to the layer's output."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.passes import Branch, Layers
from seqattn.extras.explain.explanations.rollout import DecoderMixing, Mixing, Rollout


class ALTI(Rollout):
    """Token interactions by l1 distance, multiplied through encoder and decoder.

    The output y of a branch is a sum of one vector per token: the token's term in the attention,
    and for the query's own token the residual connection, both through the norm of post-norm
    layers. A token's contribution is max(0, ||y|| - ||y - its vector||), normalized over tokens.
    Biases contribute nothing, and feed-forward sublayers do not mix tokens.
    """

    name: ClassVar[str] = "alti"
    cites: ClassVar[str] = "Ferrando et al. 2022, arXiv 2205.11631"

    def mixing(self, layers: Layers) -> Mixing:
        """Return each layer's contributions of tokens."""
        crossed = [cross_mixing(branches.cross) for branches in layers.decoder]
        decoder = [
            DecoderMixing(self_mixing(branches.own), shares[..., :-1], shares[..., -1])
            for branches, shares in zip(layers.decoder, crossed, strict=True)
        ]
        return Mixing([self_mixing(branch) for branch in layers.encoder], decoder)


def self_mixing(branch: Branch) -> Tensor:
    """Return shares (B, T, T) of the tokens in the output of a self-attention branch."""
    residual = torch.diag_embed(branch.x.transpose(1, 2)).permute(0, 2, 3, 1)  # (B, T, T, D)
    return _shares(branch, _terms(branch) + residual)


def cross_mixing(branch: Branch) -> Tensor:
    """Return shares (B, T, S+1) of the memory, and last of the residual, in a branch's output."""
    vectors = torch.cat((_terms(branch), branch.x[:, :, None]), dim=2)
    return _shares(branch, vectors)


def _terms(branch: Branch) -> Tensor:
    """Return the terms (B, T, S, D) of tokens in an attention's output, after its own norm."""
    terms, norm = branch.parts.contributions(), branch.residual.branch_norm
    return terms if norm is None else through_norm(norm, branch.parts.output[:, :, None], terms)


def _shares(branch: Branch, vectors: Tensor) -> Tensor:
    """Return contributions (B, T, S) of vectors (B, T, S, D) to a branch's output, as shares."""
    output = branch.joined
    if not branch.residual.pre_norm:
        total = branch.residual.join(branch.x, branch.parts.output)
        vectors = through_norm(branch.residual.norm, total[:, :, None], vectors)
    distance = (output[:, :, None] - vectors).abs().sum(dim=3)
    return shares_of((output.abs().sum(dim=2, keepdim=True) - distance).clamp(min=0))


def through_norm(norm: nn.Module, total: Tensor, part: Tensor) -> Tensor:
    """Apply a norm to one addend of its input, so that the parts sum to its output less its bias.

    Args:
        norm: a LayerNorm or an RMSNorm.
        total: (..., D) its complete input, which sets the scale.
        part: (..., D) the addend.
    """
    if isinstance(norm, nn.LayerNorm):
        scale = (total.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        return (part - part.mean(dim=-1, keepdim=True)) * scale * norm.weight
    assert isinstance(norm, nn.RMSNorm)
    assert norm.eps is not None
    return part * (total.square().mean(dim=-1, keepdim=True) + norm.eps).rsqrt() * norm.weight
