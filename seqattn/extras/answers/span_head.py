"""Scores of positions and spans, from features of a context and its question."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.alignment import masked_softmax
from seqattn.extras.answers.span_base import SpanScores
from seqattn.ops.layers import Linear

LONGEST = 32
"""Maximum tokens of a span with a joint score."""


class SpanHead(nn.Module):
    """Bilinear scores of positions given the question (Chen et al. 2017, arXiv 1704.00051, section
    3.2.2), and of "no answer" from the question and the max-pooled features of the window.

    Args:
        dim: width D.
        joint: normalize spans of up to `LONGEST` tokens jointly (Lee et al. 2016, arXiv
            1611.01436), with a bilinear form of their ends and a bias for each length.
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
        """Return scores from the features of a window (B, S, D) and of its question (B, Q, D).

        `real` (B, S) and `asking` (B, Q) are True on tokens.
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
    """Scores of spans of up to `LONGEST` tokens from both ends and the length.

    Args:
        dim: width D of features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = Linear(dim, dim)
        self.last = Linear(dim, dim, bias=False)
        self.length = nn.Parameter(torch.zeros(LONGEST))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores (B, S, A) from features (B, S, D): at [s, a] of a+1 tokens from token s."""
        _, tokens, dim = features.shape
        last = F.pad(self.last(features), (0, 0, 0, LONGEST))  # (B, S+A, D)
        scores = self.first(features) @ last.transpose(1, 2) * dim**-0.5  # (B, S, S+A)
        # rows that are longer by one shift each row by one token
        band = F.pad(scores.flatten(1), (0, tokens)).unflatten(1, (tokens, tokens + LONGEST + 1))
        return band[..., :LONGEST] + self.length
