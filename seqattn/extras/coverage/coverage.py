"""Bahdanau's attention that sees its earlier weights (Tu et al. 2016; See et al. 2017)."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.alignment import Annotations, Bahdanau, Past, masked_softmax
from seqattn.attention.scores import AdditiveScore
from seqattn.checking import NotNegative, Width
from seqattn.models.base import PLAIN
from seqattn.models.recurrent import Recurrent
from seqattn.ops.cross_entropy import LossTerms, TokenLoss
from seqattn.ops.precision import wide
from seqattn.tokens import PAD


class CoverageScore(AdditiveScore):
    """v^T tanh(W_h h_i + W_s s + w_c c_i), c_i the weights so far on annotation i.

    See et al. 2017 (arXiv 1704.04368, eq. 11); the linguistic coverage of Tu et al. 2016 (arXiv
    1601.04811, eq. 6 and 9) without fertility. Args: as in `AdditiveScore`.
    """

    def __init__(self, query_dim: int, memory_dim: int, dim: int | None = None) -> None:
        super().__init__(query_dim, memory_dim, dim)
        self.coverage = nn.Parameter(torch.zeros(dim or query_dim))

    def covered(self, query: Tensor, keys: Tensor, coverage: Tensor) -> Tensor:
        """Return scores (B, K, S). Args: (B, K, Q), (B, S, A), and weights so far (B, K, S)."""
        covered_term = coverage[..., None].to(keys.dtype) * self.coverage  # (B, K, S, A)
        inside = self.query(query)[:, :, None] + keys[:, None] + covered_term
        scores: Tensor = self.v(inside.tanh())[..., 0]
        return scores


class Coverage(Bahdanau):
    """Bahdanau's attention whose score also sees the sum of the earlier weights.

    Costs as much as `Bahdanau`, in steps that cannot be joined in either order; remembers S numbers
    for each hypothesis. With zeros for w_c, where it starts, it is Bahdanau's.

    Args:
        query_dim: width of the decoder's state.
        memory_dim: width M of an annotation.
        dim: width A inside the tanh; None for `query_dim`.
        loss_weight: weight of the coverage loss, see `coverage_loss`; 1 in See et al.
    """

    remembers: ClassVar[bool] = True
    score: CoverageScore

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        dim: Width | None = None,
        loss_weight: NotNegative = 0.0,
    ) -> None:
        super(Bahdanau, self).__init__(memory_dim, CoverageScore(query_dim, memory_dim, dim))
        self.loss_weight = loss_weight

    def model_type(self, default: type[Any]) -> type[Any]:
        return CoverageRecurrent if self.loss_weight else default

    def first_past(self, source: Annotations, beams: int) -> Past:
        nothing = wide(torch.zeros_like(source.values[..., 0]))
        return (nothing.repeat_interleave(beams, dim=0),)

    def weigh(
        self, query: Tensor, source: Annotations, steps: Tensor, past: Past
    ) -> tuple[Tensor, Past]:
        [coverage] = past
        scores = self.score.covered(query, source.keys, coverage.view(*query.shape[:2], -1))
        weights = masked_softmax(scores, source.real[:, None])
        return weights, (coverage + weights.flatten(0, 1),)


def coverage_loss(weights: Tensor, real: Tensor) -> Tensor:
    """Return the sum over target tokens of sum_i min(a_i, c_i), c_i the sum of earlier weights.

    See et al. 2017 (arXiv 1704.04368, eq. 12): from 0, if each step looks elsewhere, to 1 a token.

    Args:
        weights: (B, T, S).
        real: (B, T) bool, True for the tokens that count; padding follows them.
    """
    weights = wide(weights)
    earlier = F.pad(weights.cumsum(dim=1)[:, :-1], (0, 0, 1, 0))
    again: Tensor = torch.minimum(weights, earlier).sum(dim=2)
    return (again * real).sum()


class CoverageRecurrent(Recurrent):
    """A recurrent model with the coverage loss; of two passes (`simcut`) on the first."""

    def loss(
        self,
        source: Tensor,
        target: Tensor,
        following: Tensor,
        terms: LossTerms = PLAIN,
        teacher_forcing: float = 1.0,
        tokens: int | None = None,
    ) -> TokenLoss:
        state = self.start(self.encode(source), cached=False)
        output = self.features(target, state, teacher_forcing, need_weights=True)
        loss = self.head.loss(output, following, state.source_tokens, terms, tokens)
        alignment = self.decoder.cross_attention
        assert isinstance(alignment, Coverage)
        assert output.weights is not None
        rows = len(target) // 2 if terms.simcut else len(target)
        again = coverage_loss(output.weights[:rows], following[:rows] != PAD)
        return loss._replace(smoothed=loss.smoothed + alignment.loss_weight * again)
