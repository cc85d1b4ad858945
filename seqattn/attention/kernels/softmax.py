"""Softmax attention."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask
from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.ops.backends import Backend
from seqattn.positions.base import Position
from seqattn.roles import Role

_OF_WEIGHTS = "normalize", "weights", "across_heads"
_NOT_FUSED = *_OF_WEIGHTS, "value_term", "_products", "_weighted"
"""Methods that a fused kernel does not call."""


class SoftmaxKernel(WeightedKernel):
    """softmax(Q K^T / sqrt(Dh)) V (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).

    Uses fused attention where possible, which never stores the weights (Dao et al. 2022, arXiv
    2205.14135). Time T*S*D, memory linear in T and S, cache 2*G*Dh numbers per token.
    Bidirectional, causal, cross and incremental.

    A subclass that overrides `normalize`, or another method that fused attention does not call,
    materializes its weights in every pass. It must set `abilities` too if they still sum to 1.

    Args:
        backend: what computes it. auto is the fastest that fits; written_out, which materializes
            the weights, and math always apply; flash and efficient apply in training, and raise
            UserError where they cannot compute it.
    """

    written_out: ClassVar[bool] = False  # True if the weights are materialized in every pass
    abilities = replace(WeightedKernel.abilities, normalized=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.written_out = any(_is_later(cls, name, "_context") for name in _NOT_FUSED)
        if any(_is_later(cls, name, "abilities") for name in _OF_WEIGHTS):
            cls.abilities = replace(cls.abilities, normalized=False)

    def __init__(
        self, shape: HeadShape, backend: Annotated[Backend, Role.MACHINE] = "auto"
    ) -> None:
        super().__init__(shape)
        if self.written_out and backend not in ("auto", "written_out"):
            kind = type(self).__name__
            raise BadValue("backend", f"must be auto, as {kind} materializes its weights")
        self.backend: Backend = backend

    def normalize(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)

    def _context(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        is_everywhere = self.backend in ("math", "written_out")
        backend: Backend = self.backend if is_everywhere or self.training else "auto"
        on_values = "value_term" in position.hooks
        if on_values and backend not in ("auto", "written_out"):
            raise UserError(
                f"attention.kernel.backend={backend} cannot add positions to values; set "
                "position.values=false, or use auto"
            )
        if on_values or self.written_out or backend == "written_out":
            return super()._context(q, keys, values, mask, position)
        bias = self._score_term(q, keys, mask, position)
        bounds = mask.bounds if bias is None else None
        is_causal = mask.is_plain_causal and bias is None
        visible = None if is_causal else mask.visible
        if visible is not None:
            bias = visible.keys if bias is None else bias.masked_fill(~visible.keys, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        scale = position.score_scale(self.head_dim)
        context = ops.attention(q, keys, values, bias, is_causal, dropout, scale, bounds, backend)
        if visible is None or visible.empty_rows is None:
            return context
        return context.masked_fill(visible.empty_rows, 0.0)


def _is_later(cls: type, name: str, other_name: str) -> bool:
    """Return True if `cls` inherits `name` from a subclass of the class that defines `other`."""
    ranks = [
        next(rank for rank, parent in enumerate(cls.__mro__) if key in vars(parent))
        for key in (name, other_name)
    ]
    return ranks[0] < ranks[1]
