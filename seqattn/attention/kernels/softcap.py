"""Softmax attention with capped scores."""

from torch import Tensor

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.checking import Positive
from seqattn.positions.base import Position


class SoftcapKernel(SoftmaxKernel):
    """softmax(c tanh(Q K^T / (c sqrt(Dh)))) V (Gemma 2, 2024, arXiv 2408.00118, section 2).

    Terms of positions are added after the cap. Time T*S*D and a pass over the scores, memory T*S
    per head (the weights are materialized), cache 2*G*Dh numbers per token. Bidirectional, causal,
    cross and incremental.

    Args:
        cap: c, above 0; 50 in the paper.
    """

    def __init__(self, shape: HeadShape, cap: Positive = 50.0) -> None:
        super().__init__(shape)
        self.cap = cap

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        return self.cap * (super()._products(q, keys, mask, position) / self.cap).tanh()
