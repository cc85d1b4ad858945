"""Scores of places and spans, from features of a context and its question."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.alignment import masked_softmax
from seqattn.models.span_base import SpanScores
from seqattn.ops.layers import Linear

LONGEST = 32
"""Tokens of a span that is scored as a whole, at most."""


class SpanHead(nn.Module):
    """Scores places by a bilinear form with the question (Chen et al. 2017, arXiv 1704.00051,
    section 3.2.2), and "no answer" from the question and the largest features of the window.

    Args:
        dim: width D.
        joint: whether spans of up to `LONGEST` tokens are normalised together, as by Lee et al.
            (2016, arXiv 1611.01436), by a bilinear form of their ends beside a number for each
            length.
    """

    def __init__(self, dim: int, joint: bool = False) -> None:
        super().__init__()
        self.asked = Linear(dim, 1)
        self.start = Linear(dim, dim)
        self.end = Linear(dim, dim)
        self.none = Linear(2 * dim, 2)
        self.pair = SpanPairs(dim) if joint else None

    def forward(
        self, features: Tensor, real: Tensor, question: Tensor, asking: Tensor
    ) -> SpanScores:
        """Scores from the features of a window (B, S, D) and of its question (B, Q, D).

        `real` (B, S) and `asking` (B, Q) are True where a token stands.
        """
        weights = masked_softmax(self.asked(question).transpose(1, 2), asking[:, None])  # (B, 1, Q)
        summary = weights.to(question.dtype) @ question  # (B, 1, D)
        hidden = features.masked_fill(~real[..., None], -torch.inf)
        largest = torch.where(real.any(dim=1)[:, None], hidden.amax(dim=1), 0.0)
        none = self.none(torch.cat((summary[:, 0], largest), dim=1))  # (B, 2)
        scale = features.shape[-1] ** -0.5
        places = []
        for number, form in enumerate((self.start, self.end)):
            along = (features @ form(summary).transpose(1, 2))[..., 0] * scale  # (B, S)
            along = along.masked_fill(~real, -torch.inf)
            places.append(torch.cat((along, none[:, number, None]), dim=1))
        pair = None if self.pair is None else self.pair(features)
        return SpanScores(places[0], places[1], pair)


class SpanPairs(nn.Module):
    """Scores spans of up to `LONGEST` tokens by both their ends, and by their length.

    Args:
        dim: width D of features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = Linear(dim, dim)
        self.last = Linear(dim, dim, bias=False)
        self.length = nn.Parameter(torch.zeros(LONGEST))

    def forward(self, features: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, A) of the span of a+1 tokens from token s, at [s, a]."""
        _, tokens, dim = features.shape
        last = F.pad(self.last(features), (0, 0, 0, LONGEST))  # (B, S+A, D)
        scores = self.first(features) @ last.transpose(1, 2) * dim**-0.5  # (B, S, S+A)
        # a row longer by one than it is wide begins each row one token later
        band = F.pad(scores.flatten(1), (0, tokens)).unflatten(1, (tokens, tokens + LONGEST + 1))
        return band[..., :LONGEST] + self.length
