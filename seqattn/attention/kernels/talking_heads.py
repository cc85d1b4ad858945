"""Talking-heads attention: heads mixed before and after the softmax."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position


class TalkingHeadsKernel(WeightedKernel):
    """P_w softmax(P_l Q K^T / sqrt(Dh)) V (Shazeer et al. 2020, arXiv 2003.02436).

    P_l and P_w (H, H) mix the scores and the weights of a query and a key between heads; both are
    learned, initially the identity, which is softmax attention. Terms of positions are added to the
    mixed scores. Mixed weights may be negative and need not sum to 1. A mask for each head hides
    keys from the softmax and from the mixed weights of that head. Time T*S*(D + H^2), memory T*S
    per head (the weights are materialized), cache 2*G*Dh numbers per token. Bidirectional, causal,
    cross and incremental.
    """

    abilities = replace(WeightedKernel.abilities, signed=True)
    unlike_heads = "each head mixes the scores and weights of all others"
    not_matrices = ("mix_scores", "mix_weights")  # softmax attention at the identity, not at 0

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.mix_scores = nn.Parameter(torch.eye(shape.num_heads))
        self.mix_weights = nn.Parameter(torch.eye(shape.num_heads))

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        return _mixed(self.mix_scores, super()._products(q, keys, mask, position))

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)

    def across_heads(self, weights: Tensor) -> Tensor:
        return _mixed(self.mix_weights, weights)


def _mixed(matrix: Tensor, x: Tensor) -> Tensor:
    """Return x (B, H, T, S) with its heads multiplied by a matrix (H, H)."""
    pairs = x.flatten(2)  # (B, H, T*S)
    mixed = ops.exact_product(matrix.expand(len(x), -1, -1).to(x.dtype), pairs)
    return mixed.unflatten(2, x.shape[2:])
