"""Sliding-window attention: each query sees its neighbourhood, and a few tokens see everything."""

from seqattn.attention.base import HeadShape
from seqattn.attention.kernels.parts.local import LocalKernel
from seqattn.checking import Count, CountOrNone, checked


@checked
class SlidingWindowKernel(LocalKernel):
    """Softmax over the keys within a window (Beltagy et al. 2020, arXiv 2004.05150, section 3.1).

    A query at i sees the keys at j with |i - j| <= window, 2 * window + 1 of them; under a causal
    mask those from i - window to i. The first `global_tokens` of a sequence see all and are seen
    by all, under a causal mask nothing ahead. They share the projections of the others, where
    Longformer gives them their own.

    Time n*w*D and memory n*w, with nothing of n x n. The cache rolls: 2*G*Dh numbers for each of
    the last window + 1 tokens and of the global ones, however long the sequence grows.
    Bidirectional, causal and incremental; not cross.

    Args:
        shape: numbers and width of the heads, and the dropout.
        window: keys that a query sees on each side, at least 1.
        global_tokens: tokens at the beginning that see all and are seen by all.
    """

    def __init__(
        self, shape: HeadShape, window: Count = 256, global_tokens: CountOrNone = 0
    ) -> None:
        super().__init__(shape, first=global_tokens, before=window, after=window)
