"""Models that answer a question by a span of its context: their contract."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.ops.precision import wide


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
        """(B, S, 21) how each token's word meets the question's words, and what else is known of
        it; see `WordMatch`."""

    @property
    def characters(self) -> Tensor:
        """(B, W, L) characters of each row's different words, 0 for none; see `CharacterCNN`."""

    @property
    def question_words(self) -> Tensor:
        """(B, Q) each token's word among them."""

    @property
    def context_words(self) -> Tensor:
        """(B, S) each token's word among them."""


class SpanScores(NamedTuple):
    """Where an answer starts and where it ends (inclusive), as logits.

    Both are (B, S+1): a place for each token of the window, -inf on padding, and last one for "this
    window holds no answer". Where `pair` is None they are independent; else it is (B, S, A), what
    the span of a+1 tokens from token s scores at [s, a] beside its two ends, and all spans of up to
    A tokens are normalised together.
    """

    start: Tensor
    end: Tensor
    pair: Tensor | None = None

    def distributions(self) -> list[Tensor]:
        """Log-probabilities that are normalised to 1, in float32 or finer.

        Of start and of end (B, S+1) each; or where spans are scored as wholes, of all of them, row
        by row, and of none (B, S*A + 1).
        """
        start, end = wide(self.start), wide(self.end)
        if self.pair is None:
            return [start.log_softmax(dim=1), end.log_softmax(dim=1)]
        spans = start[:, :-1, None] + reaching(end[:, :-1], self.pair.shape[2]) + wide(self.pair)
        none = start[:, -1:] + end[:, -1:]
        return [torch.cat((spans.flatten(1), none), dim=1).log_softmax(dim=1)]

    def spans(self, longest: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities of spans of up to `longest` tokens (B, S, longest), and of none (B,).

        Those that end beyond the window have -inf, and where spans are scored as wholes, those that
        are longer than the model knows.
        """
        found = self.distributions()
        if self.pair is None:
            start, end = found
            return start[:, :-1, None] + reaching(end[:, :-1], longest), start[:, -1] + end[:, -1]
        spans = found[0][:, :-1].unflatten(1, self.pair.shape[1:])
        more = longest - spans.shape[2]  # below 0 it cuts
        return F.pad(spans, (0, more), value=-torch.inf), found[0][:, -1]


def reaching(x: Tensor, count: int) -> Tensor:
    """Each place and the `count` - 1 after it, (B, S) -> (B, S, count); -inf beyond the last."""
    return F.pad(x, (0, count - 1), value=-torch.inf).unfold(1, count, 1)


class SpanModel(nn.Module, ABC):
    """Scores every token of a context as the start and as the end of the answer."""

    max_source_length: int | None = None
    """Longest question, and longest window, in tokens; None where there is no limit."""

    @abstractmethod
    def forward(self, batch: SpanInput) -> SpanScores:
        """The scores of a batch; each row's depend on neither padding nor its neighbours."""
