"""Linformer: attention over a fixed number of projected keys and values."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import EncoderKernel, HeadShape
from seqattn.attention.kernels.shared.blockwise import in_order
from seqattn.attention.masks import Mask, real_first
from seqattn.checking import Width
from seqattn.errors import UserError
from seqattn.positions.base import Position

Length = Annotated[int, Ge(1), Le(10**6)]


class LinformerKernel(EncoderKernel):
    """softmax(Q (E K)^T / sqrt(Dh)) F V with learned E and F (Wang 2020, arXiv 2006.04768, eq. 7).

    E and F project the n keys and values of a sentence to k, each a weighted sum over its tokens by
    position; each layer has its own, shared by its heads. The softmax is over the k projections.
    As weights on keys, softmax(...) F would be signed and not sum to 1, so neither rollout nor
    entropy could interpret them: the kernel has no observable weights, and supports no mask but
    padding. Time T*k*D, memory (T + S)*D, no cache: only for an encoder's self-attention, neither
    causal, cross nor incremental.

    Args:
        projected: k, the number of projected keys.
        max_length: maximum tokens of a sentence.
    """

    abilities = Abilities(dropout=True, normalized=False)

    def __init__(self, shape: HeadShape, projected: Width = 64, max_length: Length = 512) -> None:
        super().__init__(shape)
        self.max_length: int = max_length
        self.keys_by_place = nn.Parameter(torch.empty(projected, max_length))  # E
        self.values_by_place = nn.Parameter(torch.empty(projected, max_length))  # F
        for table in (self.keys_by_place, self.values_by_place):
            nn.init.normal_(table, std=projected**-0.5)  # preserves inner products, theorem 2

    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        self._check_length(mask)
        order = real_first(mask.real)
        return ops.attention(
            query,
            self._project(self.keys_by_place, new.keys, mask.real, order),
            self._project(self.values_by_place, new.values, mask.real, order),
            bias=None,
            is_causal=False,
            dropout=self.dropout if self.training else 0.0,
            scale=position.score_scale(self.head_dim),
        )

    def _check_length(self, mask: Mask) -> None:
        if mask.keys <= self.max_length or torch.compiler.is_compiling():
            return
        longest = mask.keys if mask.real is None else int(mask.real.sum(dim=1).max())
        if longest > self.max_length:
            raise UserError(
                f"LinformerKernel supports at most attention.kernel.max_length "
                f"({self.max_length}) tokens per sentence, got {longest}"
            )

    def _project(
        self, table: Tensor, x: Tensor, real: Tensor | None, order: Tensor | None
    ) -> Tensor:
        """Project x (B, G, S, Dh) to (B, G, k, Dh), with tokens at their real positions."""
        if real is not None:
            x = x.masked_fill(~real[:, None, :, None], 0.0)
        x = in_order(x, order)[:, :, : self.max_length]  # the rest is padding
        return ops.product(table[:, : x.shape[2]].expand(*x.shape[:2], -1, -1), x)
