"""Hopfield attention: the query is updated before it reads values."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.groups import per_group
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position

Steps = Annotated[int, Ge(1), Le(100)]


class HopfieldKernel(SoftmaxKernel):
    """softmax(beta Q K^T) V, after updates Q = softmax(beta Q K^T) K (arXiv 2008.02217, eq. 3).

    Each update moves a query towards the keys, which are the stored patterns of a modern Hopfield
    network (Ramsauer et al. 2020); a high beta retrieves single keys, a low one means of many. beta
    is learned per head, initially 1/sqrt(Dh). Time T*S*D per step, memory T*S per head and step
    (the weights are materialized), cache 2*G*Dh numbers per token. Bidirectional, causal, cross and
    incremental.

    Args:
        steps: number of softmaxes, one more than the updates; 1 is softmax attention with a learned
            scale.
    """

    abilities = SoftmaxKernel.abilities

    def __init__(self, shape: HeadShape, steps: Steps = 2) -> None:
        super().__init__(shape)
        self.steps = steps
        if steps > 1:
            self.exceptions = {"autocast": "updates amplify the rounding of queries and keys"}
        self.log_beta = nn.Parameter(torch.zeros(shape.num_heads))  # times the position's scale

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        for _ in range(self.steps - 1):
            weights = super().weights(q, keys, mask, position)
            q = per_group(weights, keys, ops.exact_product)
        return super().weights(q, keys, mask, position)

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        q = ops.float32_on_cpu(q)
        beta = self.log_beta.exp().to(q.dtype)[:, None, None]
        return super()._products(q * beta, keys, mask, position)
