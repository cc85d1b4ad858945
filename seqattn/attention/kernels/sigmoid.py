"""Sigmoid attention: each weight by itself."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.weighted import WeightedKernel

Bias = Annotated[float, Ge(-1e9), Le(1e9)]


class SigmoidKernel(WeightedKernel):
    """sigmoid(Q K^T / sqrt(Dh) + b) V (Ramapuram et al. 2024, arXiv 2409.04431).

    Weights do not compete and need not sum to 1, so none can serve as copy probabilities. With n
    visible keys, b = -log(n) starts each query with a total weight near 1. Time T*S*D, memory T*S
    per head (the weights are materialized), cache 2*G*Dh numbers per token. Bidirectional, causal,
    cross and incremental.

    Args:
        bias: b of every query; None for -log(n).
        learned: add a learned number per head to b, initially 0.
    """

    def __init__(self, shape: HeadShape, bias: Bias | None = None, learned: bool = False) -> None:
        super().__init__(shape)
        self.bias = bias
        self.shift = nn.Parameter(torch.zeros(shape.num_heads)) if learned else None

    def normalize(self, scores: Tensor) -> Tensor:
        kind = torch.promote_types(scores.dtype, torch.float32)
        bias: Tensor | float | None = self.bias
        if bias is None:
            bias = -scores.isfinite().sum(dim=-1, keepdim=True, dtype=kind).log()
        if self.shift is not None:
            bias = bias + self.shift[:, None, None]
        return (scores + bias).sigmoid().to(scores.dtype)
