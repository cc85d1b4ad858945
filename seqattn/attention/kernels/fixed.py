"""Fixed attention: keys of the same block, and the last few of every block."""

from torch import Tensor

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.layouts import Band, Layout, Summaries
from seqattn.attention.kernels.strided import FactorizedKernel, strided_layouts, strided_set
from seqattn.checking import BadValue, Count


class FixedKernel(FactorizedKernel):
    """Fixed sparse attention (Child et al. 2019, arXiv 1904.10509, section 4.3).

    With blocks of l tokens of which the last c are summaries, query i sees A1 = {j: floor(j/l) =
    floor(i/l)} and A2 = {j: j mod l in {l-c, ..., l-1}}, in a decoder only for j <= i. Every head
    sees both sets (the paper's merged head), or half of the heads see each; in a decoder, the first
    l-c tokens see nothing in heads with only A2, and get zeros.

    Time n*(l + c*n/l)*D, which is n*sqrt(n)*D at l = sqrt(n), and memory n*(l + c*n/l) per head;
    growing cache of 2*G*Dh numbers per token, of which the next token reads l + c*n/l.
    Bidirectional, causal and incremental; not for cross-attention.

    Args:
        stride: l, tokens; about the square root of the usual length.
        summary: c, tokens, 1 to l; the paper uses 8 to 32 of l = 128.
        split_heads: every other head sees A1 and the others A2; False: every head sees the union.
            Needs an even number of heads.
        strided_heads: every other head sees the union of this pattern and the others that of
            `StridedKernel` with the same stride. Needs an even number of heads.

    Raises:
        UserError: a summary longer than the stride, or an odd number of heads to be split.
    """

    def __init__(
        self,
        shape: HeadShape,
        stride: Count = 32,
        summary: Count = 4,
        split_heads: bool = False,
        strided_heads: bool = False,
    ) -> None:
        if summary > stride:
            raise BadValue("summary", f"must be at most stride ({stride}), got {summary}", "stride")
        if split_heads and strided_heads:
            reason = "and strided_heads are mutually exclusive"
            raise BadValue("split_heads", reason, "strided_heads")
        patterns: tuple[tuple[int, ...], ...] = ((0,), (1,)) if split_heads else ((0, 1),)
        patterns = ((0, 1), (2, 3)) if strided_heads else patterns
        super().__init__(shape, stride, patterns)
        self.summary = summary
        self.sees_all_up_to = 0 if split_heads else stride

    def belongs(self, number: int, i: Tensor, j: Tensor) -> Tensor:
        if number == 0:
            return i // self.stride == j // self.stride
        if number == 1:
            return j % self.stride >= self.stride - self.summary
        return strided_set(number - 2, i, j, self.stride)

    def layouts(self, causal: bool) -> list[Layout]:
        fixed: list[Layout] = [Band(self.stride), Summaries(self.stride, self.summary)]
        return fixed + strided_layouts(self.stride, causal)
