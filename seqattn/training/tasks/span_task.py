"""Training and validation of models that answer by spans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqattn.data.span_batch import Questions, SpanBatch
from seqattn.errors import UserError
from seqattn.generation.span_search import Answerer
from seqattn.metrics.means import SpanPlaces
from seqattn.metrics.qa import AnswerScorer
from seqattn.models.span_base import SpanModel, SpanScores
from seqattn.ops.cross_entropy import symmetric_divergence
from seqattn.training.tasks.base import SummedTask
from seqattn.training.tasks.halving import BatchLoss
from seqattn.training.tasks.settings import Optimization, Sample, Validation


@dataclass(frozen=True)
class SpanValidation(Validation):
    """Real answers and their scores.

    Args:
        questions: the validation split, in rows.
    """

    answerer: Answerer
    questions: Callable[[], Questions]

    def samples(self, batch: SpanBatch) -> list[Sample]:
        """Answers the questions whose first window is here, so that each is answered once."""
        rows = self.chosen(batch.index[batch.offset == 0].tolist())
        asked = self.questions()
        found = self.answerer.answer(
            [asked.questions[row] for row in rows], [asked.contexts[row] for row in rows]
        )
        texts = [answered.answers[0].text if answered.answers else "" for answered in found]
        return [Sample(row, text, asked.answers[row]) for row, text in zip(rows, texts)]

    def metric(self) -> Any:
        return AnswerScorer().corpus()


class SpanTask(SummedTask):
    """Minimises the cross-entropy of start and end per window, over the whole effective batch.

    Args:
        validation: what is answered; None for the loss alone.
        every_answer: whether the probability of all right answers together is learnt, in place of
            the first one's.

    Raises:
        UserError: for label smoothing or teacher forcing, which places do not have.
    """

    model: SpanModel

    def __init__(
        self,
        model: SpanModel,
        optimization: Optimization,
        validation: SpanValidation | None = None,
        every_answer: bool = False,
    ) -> None:
        super().__init__(model, optimization, SpanPlaces(), validation)
        self.every_answer = every_answer
        if optimization.label_smoothing or not optimization.teacher_forcing.whole:
            raise UserError(
                "a span model has neither label smoothing nor teacher forcing; leave "
                "task.label_smoothing at 0 and task.teacher_forcing at schedule=constant start=1"
            )

    def loss(self, batch: SpanBatch) -> tuple[Tensor, Tensor]:
        """The sum over windows of both cross-entropies, and how many windows are right; where the
        answers are not known, 0 of both."""
        return self._sums(batch, self.model(batch))

    def _sums(self, batch: SpanBatch, scores: SpanScores) -> tuple[Tensor, Tensor]:
        answers = batch.answers if self.every_answer else batch.answers[:, :1]
        found = log_probabilities(scores, answers.clamp(min=0))
        found = found.masked_fill(answers[..., 0] < 0, -torch.inf).logsumexp(dim=1)
        found = found.masked_fill(batch.start < 0, 0.0)  # the answers are not known
        start, end = scores.start.argmax(dim=1), scores.end.argmax(dim=1)
        return -found.sum(), ((start == batch.start) & (end == batch.end)).sum()

    def training_loss(self, batch: SpanBatch) -> BatchLoss:
        passes, r_drop = 1, self.optimization.r_drop
        if r_drop:
            passes, batch = 2, batch.twice()
        scores = self.model(batch)
        total, right = self._sums(batch, scores)
        means = {"accuracy": right / batch.windows}
        if r_drop:
            apart = map(symmetric_divergence, scores.distributions())
            divergence = torch.stack([*apart]).sum()
            total = total + r_drop / 2 * divergence
            means["divergence"] = divergence.detach() / batch.windows
        number = batch.windows // passes
        return BatchLoss(total / passes, right.new_full((), number), number, means)

    def validation_sums(self, batch: SpanBatch) -> tuple[Tensor, Tensor, int]:
        return *self.loss(batch), int((batch.start >= 0).sum())


def log_probabilities(scores: SpanScores, places: Tensor) -> Tensor:
    """Of spans from one place to another, (B, N, 2) -> (B, N); place S says that there is none.

    A span that is longer than those that are scored as wholes counts as far as these reach.
    """
    first, last = places.unbind(dim=2)
    found = scores.distributions()
    if scores.pair is None:
        return found[0].gather(1, first) + found[1].gather(1, last)
    _, size, longest = scores.pair.shape
    inside = first * longest + (last - first).clamp(0, longest - 1)
    return found[0].gather(1, torch.where(first == size, size * longest, inside))
