"""Linformer: attention over a fixed number of mixtures of keys and values."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import EncoderKernel, HeadShape
from seqattn.attention.kernels.parts.blockwise import moved
from seqattn.attention.masks import Mask, real_first
from seqattn.checking import Width
from seqattn.errors import UserError
from seqattn.positions.base import Position

Length = Annotated[int, Ge(1), Le(10**6)]


class LinformerKernel(EncoderKernel):
    """softmax(Q (E K)^T / sqrt(Dh)) F V with learned E and F (Wang 2020, arXiv 2006.04768, eq. 7).

    E and F turn the n keys and values of a sentence into k, each a sum over all of its tokens by
    their place; a layer has its own, which all of its heads share. The softmax runs over those k
    mixtures. Spread back over keys, softmax(...) F is signed and does not sum to 1, which is no
    attention that rollout or an entropy could read, so it has no weights to show, and takes no
    mask but padding. Time T*k*D, memory (T + S)*D, no cache: it cannot be causal, cross or
    incremental, only an encoder's self-attention.

    Args:
        projected: k, the mixtures.
        max_length: most tokens of a sentence.
    """

    abilities = Abilities(dropout=True, normalised=False)

    def __init__(self, shape: HeadShape, projected: Width = 64, max_length: Length = 512) -> None:
        super().__init__(shape)
        self.max_length: int = max_length
        self.keys_by_place = nn.Parameter(torch.empty(projected, max_length))  # E
        self.values_by_place = nn.Parameter(torch.empty(projected, max_length))  # F
        for table in (self.keys_by_place, self.values_by_place):
            nn.init.normal_(table, std=projected**-0.5)  # keeps inner products, theorem 2

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
                f"LinformerKernel takes sentences of at most attention.kernel.max_length "
                f"({self.max_length}) tokens, got {longest}"
            )

    def _project(
        self, table: Tensor, x: Tensor, real: Tensor | None, order: Tensor | None
    ) -> Tensor:
        """The mixtures (B, G, k, Dh) of x (B, G, S, Dh), each token in the place it stands at."""
        if real is not None:
            x = x.masked_fill(~real[:, None, :, None], 0.0)
        x = moved(x, order)[:, :, : self.max_length]  # what stands beyond is padding
        return ops.product(table[:, : x.shape[2]].expand(*x.shape[:2], -1, -1), x)
