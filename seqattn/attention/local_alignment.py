"""Luong's local attention: a window around an aligned source position."""

from torch import Tensor, nn

from seqattn.attention.alignment import Annotations, Luong, masked_softmax
from seqattn.attention.scores import ScoreName
from seqattn.checking import Count
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide


class LuongLocal(Luong):
    """Luong's local attention (arXiv 1508.04025, section 3.2): a window around a position p_t.

    This class is local-m: p_t = t, counting tokens from 0 on both sides and ignoring padding, so
    target tokens more than `window` beyond the source's end see nothing. The softmax is over
    [p_t - window, p_t + window].

    Args and errors as for `Luong`, plus:
        window: D, tokens on either side of p_t, at least 1.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, score: ScoreName, window: Count = 10
    ) -> None:
        super().__init__(query_dim, memory_dim, score)
        self.window = window
        self.sees_all_up_to = window + 1

    def weights(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        offset = self._offset(query, source, steps)
        weights = masked_softmax(self.score(query, source.keys), self._near(offset, source))
        return weights * self.nearness(offset)

    def visible(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        return self._near(self._offset(query, source, steps), source)

    def _offset(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """Return the offset of each source token from each p_t: (B, T, S)."""
        return source.positions[:, None] - self.center(query, source, steps)[..., None]

    def _near(self, offset: Tensor, source: Annotations) -> Tensor:
        return (offset.abs() <= self.window) & source.real[:, None]

    def center(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        """Return p_t of each query: (B, T)."""
        return steps

    def nearness(self, offset: Tensor) -> Tensor | float:
        """Return the factor on the weights, at offsets (B, T, S) from p_t."""
        return 1.0


class LuongLocalPredictive(LuongLocal):
    """Luong's local-p (arXiv 1508.04025, eq. 9 and 10): the model predicts the position.

    p_t = S sigmoid(v_p^T tanh(W_p s)) with S the length of the sentence, and weights in the window
    are multiplied by exp(-(i - p_t)^2 / (2 sigma^2)), sigma = window / 2, so they sum to less
    than 1.
    """

    normalized = False

    def __init__(
        self, query_dim: int, memory_dim: int, score: ScoreName, window: Count = 10
    ) -> None:
        super().__init__(query_dim, memory_dim, score, window)
        self.sees_all_up_to = 0  # weights fall with the distance
        self.w_p = Linear(query_dim, query_dim, bias=False)
        self.v_p = Linear(query_dim, 1, bias=False)
        for layer in (self.w_p, self.v_p):
            nn.init.xavier_uniform_(layer.weight)

    def center(self, query: Tensor, source: Annotations, steps: Tensor) -> Tensor:
        share = wide(self.v_p(self.w_p(query).tanh())[..., 0]).sigmoid()
        return share * source.real.sum(dim=1, keepdim=True)

    def nearness(self, offset: Tensor) -> Tensor:
        sigma = self.window / 2
        return (offset.square() / (-2 * sigma**2)).exp()
