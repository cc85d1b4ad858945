"""A bundle that answers questions by spans of their contexts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seqattn.bundle.bundle import Asked, Bundle, Choice
from seqattn.bundle.outputs import Answers
from seqattn.bundle.text_arguments import Texts, as_many
from seqattn.data.span_batch import Questions, SpanEncoder
from seqattn.generation.base import Progress
from seqattn.generation.span_search import Answered, Answerer
from seqattn.models.span_base import SpanModel


@dataclass(repr=False)
class SpanBundle(Bundle):
    """A bundle that answers questions by spans of their contexts (task=qa); see `answer`.

    Attributes: as `TextBundle`.
    """

    model: SpanModel
    batches: ClassVar[str] = "spans"
    output: ClassVar[str] = "spans"
    unit: ClassVar[str] = "questions"
    searches: ClassVar[Sequence[str]] = ("spans",)

    def answer(
        self, questions: Texts, contexts: Texts, generation: Choice = None, **settings: Any
    ) -> list[Answered]:
        """Return answers to each question, best first, with characters and probabilities.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation, **settings: as `search`, such as answers=3.
        """
        pairs = as_many(questions, contexts)
        return self.answerer(generation, **settings).answer(*pairs)

    def answerer(self, generation: Choice = None, **settings: Any) -> Answerer:
        """Return the search bound to the model. Args: as `search`."""
        return Answerer(self.model, self.encoder, self.search(generation, **settings))

    @property
    def encoder(self) -> SpanEncoder:
        """Encoder of questions and contexts into batches, as in training."""
        return SpanEncoder(self.tokenizer, self._loader())

    @property
    def asks(self) -> bool:
        return True

    def check(self) -> None:
        self.answerer()

    def rows(self, table: Any, split: str) -> Questions:
        return Questions.of(table)

    def outputs(
        self, rows: Questions, search: Choice = None, progress: Progress | None = None
    ) -> Answers:
        began = time.perf_counter()
        answers = self.answerer(search).answer(rows.questions, rows.contexts, progress)
        return Answers.of(rows, answers, time.perf_counter() - began)

    def answer_lines(
        self, pairs: Asked, search: Choice, count: int, progress: Progress | None
    ) -> list[dict[str, Any]]:
        """Return answers, best first, with characters and probabilities; see `Bundle`."""
        questions, contexts = ([pair[side] for pair in pairs] for side in (0, 1))
        answers = self.answerer(search).answer(questions, contexts, progress)
        return [one.plain() for one in answers]
