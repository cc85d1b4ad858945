"""Training and validation of models that answer by spans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.auxiliary import auxiliary_losses
from seqattn.data.span_batch import Questions, SpanBatch
from seqattn.errors import UserError
from seqattn.generation.spans import Answerer
from seqattn.metrics.qa import QaScores
from seqattn.metrics.span import SpanPlaces
from seqattn.models.span import SpanModel
from seqattn.tasks.base import Optimization, SummedTask


@dataclass(frozen=True)
class SpanValidation:
    """What is measured by real answers beside the loss.

    Args:
        answerer: the model with its search.
        questions: the validation split, in rows.
        every: epochs from one time to the next; 0 for never.
        limit: the first rows that are answered; 0 for all.

    Raises:
        UserError: for a negative number.
    """

    answerer: Answerer
    questions: Callable[[], Questions]
    every: int = 1
    limit: int = 0

    def __post_init__(self) -> None:
        for name in ("every", "limit"):
            if getattr(self, name) < 0:
                raise UserError(
                    f"task.validation.{name} must be at least 0, got {getattr(self, name)}"
                )


class SpanSample(NamedTuple):
    """One validation question's place in its split, answer ("" for none) and right answers."""

    row: int
    question: str
    answer: str
    references: list[str]


class SpanTask(SummedTask):
    """Minimises the cross-entropy of start and end per window, over the whole effective batch.

    Args:
        model: the span model.
        optimization: optimizer and schedule.
        validation: what is answered; None for the loss alone.

    Raises:
        UserError: for label smoothing or teacher forcing, which places do not have.
    """

    model: SpanModel

    def __init__(
        self,
        model: SpanModel,
        optimization: Optimization,
        validation: SpanValidation | None = None,
    ) -> None:
        super().__init__(model, optimization)
        if optimization.label_smoothing or not optimization.teacher_forcing.whole:
            raise UserError(
                "a span model has neither label smoothing nor teacher forcing; leave "
                "task.label_smoothing at 0 and task.teacher_forcing at schedule=constant start=1"
            )
        self.validation = validation
        self.places = SpanPlaces()
        self.qa = QaScores()
        self.samples: list[SpanSample] = []
        """Some answers of the last validation that answered."""

    def loss(self, batch: SpanBatch) -> tuple[Tensor, Tensor]:
        """The sum over windows of both cross-entropies, and how many windows are right."""
        start, end = self.model(batch)
        wide = torch.promote_types(start.dtype, torch.float32)
        total = F.cross_entropy(start.to(wide), batch.start, reduction="sum")
        total = total + F.cross_entropy(end.to(wide), batch.end, reduction="sum")
        right = (start.argmax(dim=1) == batch.start) & (end.argmax(dim=1) == batch.end)
        return total, right.sum()

    def training_step(self, batch: SpanBatch, batch_idx: int) -> Tensor:
        with auxiliary_losses(self.model) as losses:
            total, right = self.loss(batch)
        count = batch.windows
        loss = total.detach() / count
        self.log_dict({"train/loss": loss, "train/accuracy": right / count}, batch_size=count)
        self.log("loss", loss, prog_bar=True, logger=False, batch_size=1)
        return self.summed(total, right.new_tensor(count), losses, count)

    @property
    def answers_now(self) -> bool:
        """Whether this validation answers."""
        plan = self.validation
        if plan is None or plan.every == 0 or self.trainer.sanity_checking:
            return False
        return (self.current_epoch + 1) % plan.every == 0

    def on_validation_epoch_start(self) -> None:
        if self.answers_now:
            self.samples = []

    def validation_step(self, batch: SpanBatch, batch_idx: int) -> None:
        self.places.update(*self.loss(batch), batch.windows)
        if self.answers_now:
            self._answer(batch)

    def _answer(self, batch: SpanBatch) -> None:
        """Answers the questions whose first window is here, so that each is answered once."""
        plan = self.validation
        assert plan is not None
        openings = batch.index[batch.offset == 0].tolist()
        chosen = [row for row in openings if not plan.limit or row < plan.limit]
        rows = plan.questions()
        questions = [rows.questions[row] for row in chosen]
        found = plan.answerer.answer(questions, [rows.contexts[row] for row in chosen])
        texts = [answered.answers[0].text if answered.answers else "" for answered in found]
        references = [rows.answers[row] for row in chosen]
        self.qa.update(texts, references)
        new = map(SpanSample, chosen, questions, texts, references)
        self.samples = sorted([*self.samples, *new], key=lambda sample: sample.row)[:8]

    def on_validation_epoch_end(self) -> None:
        scores = self.places.compute()
        self.places.reset()
        if self.answers_now:
            scores |= self.qa.compute()
            self.qa.reset()
        # equal on every rank already, since metrics sum over ranks; Lightning asks for sync_dist
        told = {f"val/{name}": value.to(self.device) for name, value in scores.items()}
        self.log_dict(told, sync_dist=True)
