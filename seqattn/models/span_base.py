"""Models that answer a question by a span of its context: their contract and what they share."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from seqattn.attention.alignment import masked_softmax
from seqattn.attention.base import Attention
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position, Stack
from seqattn.tokens import PAD


class SpanInput(Protocol):
    """What a span model reads: B questions, and a window of each one's context."""

    @property
    def question(self) -> Tensor:
        """(B, Q) ids, padded with 0 on either side."""

    @property
    def context(self) -> Tensor:
        """(B, S) ids, padded with 0 on either side."""

    @property
    def match(self) -> Tensor:
        """(B, S, 4) how each token's word meets the question's words; see `WordMatch`."""


class SpanScores(NamedTuple):
    """Where an answer starts and where it ends (inclusive), as logits.

    Both are (B, S+1): a place for each token of the window, -inf on padding, and last one for "this
    window holds no answer".
    """

    start: Tensor
    end: Tensor


class SpanModel(nn.Module, ABC):
    """Scores every token of a context as the start and as the end of the answer."""

    max_source_length: int | None = None
    """Longest question, and longest window, in tokens; None where there is no limit."""

    @abstractmethod
    def forward(self, batch: SpanInput) -> SpanScores:
        """The scores of a batch; each row's depend on neither padding nor its neighbours."""


class SpanHead(nn.Module):
    """Scores places by a bilinear form with the question (Chen et al. 2017, arXiv 1704.00051,
    section 3.2.2), and "no answer" from the question and the largest features of the window.

    Args:
        dim: width D.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.asked = nn.Linear(dim, 1)
        self.start = nn.Linear(dim, dim)
        self.end = nn.Linear(dim, dim)
        self.none = nn.Linear(2 * dim, 2)

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
        return SpanScores(*places)


MATCHES = 4
"""Numbers that a batch says of each token: whether its word, the word in lower case and the word's
stem stand in the question, and how frequent the word is in the context."""


class WordMatch(nn.Module):
    """The features of DrQA's document reader (Chen et al. 2017, arXiv 1704.00051, section 3.2.1).

    Beside each token's embedding stand how its word meets the question's words, and the question's
    embeddings averaged by how alike they are to its own. Time S*Q*D.

    Args:
        dim: width D of the embeddings.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alike = nn.Linear(dim, dim)
        self.width = 2 * dim + MATCHES

    def forward(self, context: Tensor, question: Tensor, asking: Tensor, match: Tensor) -> Tensor:
        """Embeddings of a window (B, S, D) and its question (B, Q, D) -> (B, S, 2*D + 4).

        `asking` (B, Q) is True where a token stands, `match` (B, S, 4) is the batch's.
        """
        mine, theirs = self.alike(context).relu(), self.alike(question).relu()
        weights = masked_softmax(mine @ theirs.transpose(1, 2), asking[:, None])  # (B, S, Q)
        alike = weights.to(question.dtype) @ question
        return torch.cat((context, alike, match.to(context.dtype)), dim=2)


class MatchingModel(SpanModel):
    """Reads question and context apart, lets the context ask the question, and reads on from there.

    Each token of the context stands beside what it attends to in the question, and their product,
    as in BiDAF (Seo et al. 2017, arXiv 1611.01603, eq. 4).
    """

    question_attention: Attention
    """By which the context asks the question."""
    join: nn.Linear
    """From (B, S, 3*D) to (B, S, D)."""
    head: SpanHead

    @abstractmethod
    def read_apart(self, batch: SpanInput, own: Mask, mask: Mask) -> tuple[Tensor, Tensor]:
        """Features of questions (B, Q, D), under the mask `own`, and of contexts (B, S, D)."""

    @abstractmethod
    def read_again(self, joined: Tensor, mask: Mask) -> Tensor:
        """Features of contexts (B, S, D) that know the question -> those that are scored."""

    def forward(self, batch: SpanInput) -> SpanScores:
        asking, real = batch.question != PAD, batch.context != PAD
        own, mask = Mask.full(asking), Mask.full(real)
        question, context = self.read_apart(batch, own, mask)
        across = replace(own, query_positions=mask.query_positions, real_queries=real)
        asked, no_position = self.question_attention.project(question), Position(Stack(1, 1))
        heard = self.question_attention(context, asked, across, no_position).output
        joined = self.join(torch.cat((context, heard, context * heard), dim=2))
        return self.head(self.read_again(joined, mask), real, question, asking)
