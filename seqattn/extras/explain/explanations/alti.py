"""ALTI+: how near each token's part of a layer's output is to the whole, layer by layer."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from seqattn.extras.explain.explanations.parts import shares_of
from seqattn.extras.explain.explanations.passes import Branch, Layers
from seqattn.extras.explain.explanations.rollout import DecoderMixing, Mixing, Rollout


class ALTI(Rollout):
    """Token interactions by l1 distance, multiplied through encoder and decoder.

    What a branch gives, y, is a sum of a vector for each token: what attention takes from it and,
    for the token itself, the residual connection, both through the norm where it stands after
    them. A token's part is max(0, ||y|| - ||y - its vector||), as a share of all tokens'. Biases
    have no part, and feed-forward sublayers mix no tokens.
    """

    name: ClassVar[str] = "alti"
    cites: ClassVar[str] = "Ferrando et al. 2022, arXiv 2205.11631"

    def mixing(self, layers: Layers) -> Mixing:
        """How near each token's part is to the whole."""
        crossed = [cross_mixing(branches.cross) for branches in layers.decoder]
        decoder = [
            DecoderMixing(self_mixing(branches.own), shares[..., :-1], shares[..., -1])
            for branches, shares in zip(layers.decoder, crossed, strict=True)
        ]
        return Mixing([self_mixing(branch) for branch in layers.encoder], decoder)


def self_mixing(branch: Branch) -> Tensor:
    """Shares (B, T, T) of the tokens in what a branch of self-attention gives."""
    vectors = branch.parts.contributions()
    own = torch.diag_embed(branch.x.transpose(1, 2)).permute(0, 2, 3, 1)  # (B, T, T, D)
    return _shares(branch, vectors + own)


def cross_mixing(branch: Branch) -> Tensor:
    """Shares (B, T, S+1) of the memory, and last of the residual, in what a branch gives."""
    vectors = torch.cat((branch.parts.contributions(), branch.x[:, :, None]), dim=2)
    return _shares(branch, vectors)


def _shares(branch: Branch, vectors: Tensor) -> Tensor:
    """The parts of vectors (B, T, S, D) in what the branch gives, as shares (B, T, S)."""
    whole = branch.joined
    if not branch.residual.pre_norm:
        joined = branch.x + branch.parts.output
        vectors = through_norm(branch.residual.norm, joined[:, :, None], vectors)
    distance = (whole[:, :, None] - vectors).abs().sum(dim=3)
    return shares_of((whole.abs().sum(dim=2, keepdim=True) - distance).clamp(min=0))


def through_norm(norm: nn.Module, whole: Tensor, part: Tensor) -> Tensor:
    """What a norm makes of a part of its input, as a sum of them makes its output less its bias.

    Args:
        norm: a LayerNorm or an RMSNorm.
        whole: (..., D) its input, by which it scales.
        part: (..., D).
    """
    if isinstance(norm, nn.LayerNorm):
        scale = (whole.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        return (part - part.mean(dim=-1, keepdim=True)) * scale * norm.weight
    assert isinstance(norm, nn.RMSNorm)
    assert norm.eps is not None
    return part * (whole.square().mean(dim=-1, keepdim=True) + norm.eps).rsqrt() * norm.weight
