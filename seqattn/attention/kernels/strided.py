"""Strided attention: near keys, and keys a whole number of strides away."""

from torch import Tensor

from seqattn.attention.base import HeadShape
from seqattn.attention.kernels.parts.factorized import FactorizedKernel
from seqattn.attention.kernels.parts.layouts import Band, Columns, Layout
from seqattn.checking import Count, checked


def strided_set(number: int, i: Tensor, j: Tensor, stride: int) -> Tensor:
    """Whether key j is in the near (0) or strided (1) set of query i, causality left out."""
    return (i - j) % stride == 0 if number else (i - j).abs() <= stride


def strided_layouts(stride: int, causal: bool) -> list[Layout]:
    """The layouts of the two sets."""
    return [Band(stride, stride, 0 if causal else stride, compact=True), Columns(stride)]


@checked
class StridedKernel(FactorizedKernel):
    """Strided sparse attention (Child et al. 2019, arXiv 1904.10509, section 4.3).

    With stride l, query i sees A1 = {j: i-l <= j <= i} and A2 = {j: (i-j) mod l = 0, j <= i}. An
    encoder sees the same sets on both sides: |i-j| <= l, and all j with (i-j) mod l = 0. Every
    head sees both sets (the paper's merged head), or half of the heads each.

    Time n*(l + n/l)*D, which is n*sqrt(n)*D at l = sqrt(n), and memory n*(l + n/l) a head;
    growing cache of 2*G*Dh numbers a token, all of it read at each. Bidirectional, causal and
    incremental; not for cross-attention.

    Args:
        stride: l, tokens; about the square root of the usual length.
        split_heads: half of the heads, every other one, see A1 and the others A2, so that one
            layer still combines both; False: every head sees the union. Needs an even number.

    Raises:
        UserError: for heads that cannot be shared out.
    """

    def __init__(self, shape: HeadShape, stride: Count = 32, split_heads: bool = False) -> None:
        patterns = ((0,), (1,)) if split_heads else ((0, 1),)
        super().__init__(shape, stride, patterns)
        self.stride = stride

    def belongs(self, number: int, i: Tensor, j: Tensor) -> Tensor:
        return strided_set(number, i, j, self.stride)

    def layouts(self, causal: bool) -> list[Layout]:
        return strided_layouts(self.stride, causal)
