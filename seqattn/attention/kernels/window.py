"""Sliding-window attention: each query sees its neighbourhood, and a few tokens see everything."""

from seqattn.attention.base import Abilities
from seqattn.attention.kernels.parts.local import LocalKernel
from seqattn.errors import UserError


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
        num_heads: query heads H.
        num_kv_heads: key and value heads G, dividing H.
        head_dim: width of a head Dh.
        dropout: share of attention weights dropped in training, 0 to 1.
        window: keys that a query sees on each side, at least 1.
        global_tokens: tokens at the beginning that see all and are seen by all.

    Raises:
        UserError: for a window below 1 or fewer than 0 global tokens.
    """

    abilities = Abilities(
        bidirectional=True,
        causal=True,
        cross=False,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
    )

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        window: int = 256,
        global_tokens: int = 0,
    ) -> None:
        if window < 1:
            raise UserError(f"attention.kernel.window must be at least 1, got {window}")
        if global_tokens < 0:
            raise UserError(
                f"attention.kernel.global_tokens must be at least 0, got {global_tokens}"
            )
        heads = (num_heads, num_kv_heads, head_dim)
        super().__init__(heads, dropout, first=global_tokens, before=window, after=window)
