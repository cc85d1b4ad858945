"""Training and validation of models for extractive question answering."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from seqattn.checking import keys_under
from seqattn.errors import UserError
from seqattn.extras.answers.scorers import AnswerScorer
from seqattn.extras.answers.span_base import SpanModel, SpanScores
from seqattn.extras.answers.span_batch import Questions, SpanBatch
from seqattn.extras.answers.span_search import Answerer
from seqattn.metrics.means import Means
from seqattn.ops.cross_entropy import symmetric_divergence
from seqattn.training.step import BatchLoss
from seqattn.training.tasks.base import SummedTask
from seqattn.training.tasks.settings import Choose, Optimization, Validation


def span_validation(
    answerer: Answerer, questions: Callable[[], Questions], **options: int
) -> Validation:
    """Return the answering and scoring of the validation split's questions in training.

    Args:
        questions: rows of the split.
        **options: `every` and `limit`, as in `Validation`.
    """

    def answers(batch: SpanBatch, choose: Choose) -> Iterator[tuple[int, str]]:
        # each question whose first window is in the batch, so that it is answered once
        rows, split = choose(batch.index[batch.offset == 0].tolist()), questions()
        asked, contexts = (
            [split.sources[row] for row in rows],
            [split.contexts[row] for row in rows],
        )
        yield from zip(rows, [one.best for one in answerer.answer(asked, contexts)], strict=True)

    return Validation(answers, AnswerScorer(), lambda: questions().references, **options)


class SpanPlaces(Means):
    """Loss and accuracy of answer positions, per window."""

    def __init__(self) -> None:
        super().__init__(("loss", "accuracy"))

    def update(  # type: ignore[override]
        self, loss: Tensor, right: Tensor, windows: int
    ) -> None:
        """Add a batch's sums: losses of start and end in nats, and correct windows."""
        if windows:
            self.add({"loss": loss, "accuracy": right}, windows)


class SpanTask(SummedTask):
    """Minimize the cross-entropy of start and end per window over the effective batch.

    Args:
        validation: answering and scoring; None for the loss only.
        every_answer: True to maximize the total probability of all right answers in place of the
            first one's.

    Raises:
        UserError: for teacher forcing, or a term of the loss other than R-Drop, which do not apply
            to spans.
    """

    model: SpanModel

    def __init__(
        self,
        model: SpanModel,
        optimization: Optimization,
        validation: Validation | None = None,
        every_answer: bool = False,
    ) -> None:
        super().__init__(model, optimization, SpanPlaces(), validation)
        self.every_answer = every_answer
        with keys_under("task"):
            optimization.terms.check_only("r_drop")
        if not optimization.teacher_forcing.whole:
            raise UserError(
                "span models do not support teacher forcing; set "
                "task.teacher_forcing.schedule=constant task.teacher_forcing.start=1"
            )

    def loss(self, batch: SpanBatch) -> tuple[Tensor, Tensor]:
        """Return the sum of both cross-entropies over windows, and the number of correct windows.

        Windows with unknown answers count as 0 in both.
        """
        return self._sums(batch, self.model(batch))

    def _sums(self, batch: SpanBatch, scores: SpanScores) -> tuple[Tensor, Tensor]:
        answers = batch.answers if self.every_answer else batch.answers[:, :1]
        log_p = log_probabilities(scores, answers.clamp(min=0))
        log_p = log_p.masked_fill(answers[..., 0] < 0, -torch.inf).logsumexp(dim=1)
        log_p = log_p.masked_fill(batch.start < 0, 0.0)  # the answers are not known
        start, end = scores.start.argmax(dim=1), scores.end.argmax(dim=1)
        return -log_p.sum(), ((start == batch.start) & (end == batch.end)).sum()

    def units(self, batch: SpanBatch) -> int:
        return batch.windows

    def training_loss(self, batch: SpanBatch) -> BatchLoss:
        passes, r_drop = 1, self.optimization.terms.r_drop
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
        return BatchLoss(total / passes, number, means)

    def validation_sums(self, batch: SpanBatch) -> tuple[Tensor, Tensor, int]:
        return *self.loss(batch), int((batch.start >= 0).sum())


def log_probabilities(scores: SpanScores, positions: Tensor) -> Tensor:
    """Return log-probabilities of spans, (B, N, 2) -> (B, N); position S means no answer.

    A span longer than the longest scored one is truncated to it.
    """
    first, last = positions.unbind(dim=2)
    distributions = scores.distributions()
    if scores.pair is None:
        return distributions[0].gather(1, first) + distributions[1].gather(1, last)
    _, size, longest = scores.pair.shape
    inside = first * longest + (last - first).clamp(0, longest - 1)
    return distributions[0].gather(1, torch.where(first == size, size * longest, inside))
