"""Interface of models that answer a question with a span of its context."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.precision import wide


class SpanInput(Protocol):
    """Input of a span model: B questions, each with a window of its context."""

    @property
    def question(self) -> Tensor:
        """Question ids (B, Q), padded with 0 on either side."""

    @property
    def context(self) -> Tensor:
        """Context ids (B, S), padded with 0 on either side."""

    @property
    def match(self) -> Tensor:
        """Features (B, S, 21) of each token's word, such as exact match with the question; see
        `WordMatch`."""

    @property
    def characters(self) -> Tensor:
        """Characters (B, W, L) of each row's distinct words, 0 for none; see `CharacterCNN`."""

    @property
    def question_words(self) -> Tensor:
        """Index (B, Q) of each question token's word in `characters`."""

    @property
    def context_words(self) -> Tensor:
        """Index (B, S) of each context token's word in `characters`."""


class SpanScores(NamedTuple):
    """Logits of the start and the (inclusive) end of an answer.

    Both are (B, S+1): one for each token of the window, -inf on padding, and a last one for "no
    answer in this window". If `pair` is None, start and end are independent; else it is (B, S, A)
    with an additional score at [s, a] for the span of a+1 tokens from token s, and all spans of up
    to A tokens are normalized jointly.
    """

    start: Tensor
    end: Tensor
    pair: Tensor | None = None

    def distributions(self) -> list[Tensor]:
        """Return normalized log-probabilities, in at least float32.

        One tensor each for start and end, (B, S+1); with joint scores, a single one for all spans,
        row by row, and no answer, (B, S*A + 1).
        """
        start, end = wide(self.start), wide(self.end)
        if self.pair is None:
            return [start.log_softmax(dim=1), end.log_softmax(dim=1)]
        spans = start[:, :-1, None] + reaching(end[:, :-1], self.pair.shape[2]) + wide(self.pair)
        none = start[:, -1:] + end[:, -1:]
        return [torch.cat((spans.flatten(1), none), dim=1).log_softmax(dim=1)]

    def spans(self, longest: int) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of spans up to `longest` tokens (B, S, longest) and none (B,).

        Spans that end beyond the window get -inf, and so do spans longer than A with joint scores.
        """
        distributions = self.distributions()
        if self.pair is None:
            start, end = distributions
            return start[:, :-1, None] + reaching(end[:, :-1], longest), start[:, -1] + end[:, -1]
        joint = distributions[0]
        spans = joint[:, :-1].unflatten(1, self.pair.shape[1:])
        more = longest - spans.shape[2]  # negative padding truncates
        return F.pad(spans, (0, more), value=-torch.inf), joint[:, -1]


def reaching(x: Tensor, count: int) -> Tensor:
    """Return each position and the next `count` - 1, (B, S) -> (B, S, count); -inf past the end."""
    return F.pad(x, (0, count - 1), value=-torch.inf).unfold(1, count, 1)


class SpanModel(nn.Module, ABC):
    """Base of models that score context tokens as start and end of the answer."""

    max_source_length: int | None = None
    """Maximum tokens of a question and of a window; None for no limit."""

    @abstractmethod
    def forward(self, batch: SpanInput) -> SpanScores:
        """Return the scores of a batch, independent of padding and of other rows."""
