"""Streaming attention: a few first tokens and a rolling window, for generation without an end."""

from seqattn.attention.base import Abilities
from seqattn.attention.kernels.parts.local import LocalKernel
from seqattn.errors import UserError


class StreamingKernel(LocalKernel):
    """Softmax over sinks and a rolling window (Xiao et al. 2023, arXiv 2309.17453, section 3.2).

    A query at i sees the first `sinks` tokens and the last `window`, itself included. Positions
    are those inside the cache: keys are cached as they are and turned at every step for the place
    that they have there, so that a distance within the window is i - j as ever, and that to a sink
    at j is min(i, sinks + window - 1) - j, never more than training has seen. A full pass uses the
    same distances.

    Time n*w*D and memory n*w, with nothing of n x n. The cache holds 2*G*Dh numbers for each of
    sinks + window tokens, however many are generated. Causal and incremental: for decoders only,
    neither bidirectional nor cross.

    Args:
        num_heads: query heads H.
        num_kv_heads: key and value heads G, dividing H.
        head_dim: width of a head Dh.
        dropout: share of attention weights dropped in training, 0 to 1.
        sinks: tokens at the beginning that stay, 0 for none.
        window: tokens that roll, the query's own included, at least 1.

    Raises:
        UserError: for fewer than 0 sinks or a window below 1.
    """

    abilities = Abilities(
        bidirectional=False,
        causal=True,
        cross=False,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
    )
    places_in_cache = True

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        sinks: int = 4,
        window: int = 256,
    ) -> None:
        if sinks < 0:
            raise UserError(f"attention.kernel.sinks must be at least 0, got {sinks}")
        if window < 1:
            raise UserError(f"attention.kernel.window must be at least 1, got {window}")
        heads = (num_heads, num_kv_heads, head_dim)
        super().__init__(heads, dropout, first=sinks, before=window - 1, after=0)
