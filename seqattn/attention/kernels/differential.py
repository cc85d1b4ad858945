"""Differential attention: one softmax minus another."""

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask
from seqattn.checking import Share
from seqattn.errors import UserError
from seqattn.ops.precision import wide
from seqattn.positions.base import Position


class DifferentialKernel(WeightedKernel):
    """Norm((softmax(Q1 K1^T / sqrt(Dh)) - l softmax(Q2 K2^T / sqrt(Dh))) [V1; V2]) (1 - l0).

    Ye et al. 2024 (arXiv 2410.05258, eq. 1 to 3). Heads 2i and 2i + 1 form a pair, which is one
    head of the paper: both take the difference of their weights, which cancels what the two have in
    common, and an RMS norm covers their joint context. l is exp(a1 b1) - exp(a2 b2) + l0 with
    learned vectors a and b, the same for all pairs. The weights that `capture` shows are the
    differences, equal for both heads of a pair, before the norm; they may be negative and sum to
    1 - l. An edit or a mask of one head of a pair changes the norm, and so the context of both.
    Time T*S*D, memory T*S per head (the weights are materialized), cache 2*G*Dh numbers per token.
    Bidirectional, causal, cross and incremental.

    Args:
        initial: l0, 0 to 1, about the initial l; in the paper 0.2 in the first layer to 0.8 in deep
            ones.

    Raises:
        UserError: the number of heads is odd.
    """

    abilities = replace(WeightedKernel.abilities, signed=True)
    exceptions: Mapping[str, str] = {"accounts": "a norm follows the sum of values"}
    unlike_heads = "its heads work in pairs"
    not_matrices = ("vectors",)

    def __init__(self, shape: HeadShape, initial: Share = 0.8) -> None:
        super().__init__(shape)
        if shape.num_heads % 2:
            raise UserError(
                f"attention.num_heads must be even for {type(self).__name__}, got {shape.num_heads}"
            )
        self.initial = initial
        self.vectors = nn.Parameter(0.1 * torch.randn(4, shape.head_dim))
        self.scale = nn.Parameter(torch.ones(2 * shape.head_dim))

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)

    def across_heads(self, weights: Tensor) -> Tensor:
        a1, b1, a2, b2 = self.vectors
        factor = (a1 * b1).sum().exp() - (a2 * b2).sum().exp() + self.initial
        first, second = weights.unflatten(1, (-1, 2)).unbind(2)  # (B, H/2, T, S)
        return (first - factor.to(first.dtype) * second).repeat_interleave(2, dim=1)

    def _weighted(self, weights: Tensor, values: Tensor, mask: Mask, position: Position) -> Tensor:
        context = super()._weighted(weights, values, mask, position).unflatten(1, (-1, 2))
        joint = wide(context.transpose(2, 3).flatten(3))  # (B, H/2, T, 2*Dh)
        joint = F.rms_norm(joint, self.scale.shape, wide(self.scale), 1e-5) * (1 - self.initial)
        heads = joint.unflatten(3, (2, -1)).transpose(2, 3).flatten(1, 2)  # (B, H, T, Dh)
        return heads.to(context.dtype)
