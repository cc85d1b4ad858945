"""Training of a model that answers questions by spans of their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from seqattn.analysis.heatmaps import Sentence, question_heatmap
from seqattn.data.module import SpanData
from seqattn.data.span_batch import Questions, SpanEncoder
from seqattn.data.tokenizer import Tokenizer
from seqattn.generation.span_search import Answered, Answerer, SpanSearch
from seqattn.metrics.qa import QaScorer, best_threshold
from seqattn.metrics.text import TextScore, named
from seqattn.models.span_base import SpanModel
from seqattn.runs.fitting import Fitting
from seqattn.runs.task_options import ExtractiveAnswering
from seqattn.tasks.span_task import SpanTask, SpanValidation
from seqattn.training.callbacks import Throughput

if TYPE_CHECKING:
    from seqattn.runs.train import Training


class SpanFitting(Fitting):
    """What training on questions answered by spans takes.

    Its `generation` gets the threshold that scores best, where the validation split has questions
    without an answer.

    Args:
        options: the task.
        run: its settings.
        tokenizer: one that is ready; None to train one.
    """

    data: SpanData
    model: SpanModel
    task: SpanTask
    generation: SpanSearch

    def __init__(
        self, options: ExtractiveAnswering, run: Training, tokenizer: Tokenizer | None
    ) -> None:
        super().__init__(run)
        self.options = options
        self.throughput = Throughput("context tokens", attrgetter("context_tokens"))
        self.data = SpanData(
            run.data, run.tokenizer, run.loader, run.cache_dir, run.seed, tokenizer
        )

    def make_task(self) -> None:
        self.questions = self.data.rows("val")
        validation = SpanValidation(
            Answerer(self.model, self.data.encoder(), self.generation),
            lambda: self.questions,
            every=self.options.validation.every,
            limit=self.options.validation.sentences,
        )
        self.task = SpanTask(self.model, self.optimization(), validation)

    def longest(self) -> list[tuple[str, str, int, int | None]]:
        window, question = self.data.longest
        limit = self.model.max_source_length
        return [
            ("window", "loader.window", window, limit),
            ("question", "loader.max_question", question, limit),
        ]

    def scores(self, count: int | None) -> dict[str, Any]:
        ids, questions, contexts, answers = self.questions
        asked = Questions(ids[:count], questions[:count], contexts[:count], answers[:count])
        self.model.to(self.task.device)
        search = replace(self.generation, threshold=1.0)
        answerer = Answerer(self.model, self.data.encoder(), search)
        found = answerer.answer(asked.questions, asked.contexts)
        if not all(asked.answers):
            self.generation = replace(self.generation, threshold=_threshold(asked, found))
        found = [answered.within(self.generation.threshold) for answered in found]
        return named(score_answers(self.options.scorer, asked, found), "val")

    def samples(self) -> list[tuple[str, str, str]]:
        asked = self.questions.questions
        return [
            (asked[s.row], s.hypothesis or "(no answer)", " | ".join(s.references) or "(no answer)")
            for s in self.task.samples
        ]

    def draw(self) -> Figure | None:
        """What the context asks in the first validation question."""
        asked = self.questions
        encoder = self.data.encoder()
        return draw_question(self.model, encoder, asked.questions[0], asked.contexts[0])


def draw_question(
    model: SpanModel, encoder: SpanEncoder, question: str, context: str
) -> Figure | None:
    """Heatmap of one question on the first window of its context; None without weights to show."""
    batch = next(encoder([question], [context]))
    pieces = encoder.reader.tokenizer.source_pieces
    asked, read = ([int(token) for token in ids[0]] for ids in (batch.question, batch.context))
    return question_heatmap(
        model,
        Sentence(asked, pieces(asked)),
        Sentence(read, pieces(read)),
        batch.to(next(model.parameters()).device),
    )


def score_answers(scorer: QaScorer, asked: Questions, found: Sequence[Answered]) -> list[TextScore]:
    """Scores of the answers to some questions."""
    gold = dict(zip(asked.ids, asked.answers, strict=True))
    return scorer.score(best_texts(asked, found), gold)


def best_texts(asked: Questions, found: Sequence[Answered]) -> dict[str, str]:
    """The best answer to each question by its id, "" for none."""
    texts = [answered.answers[0].text if answered.answers else "" for answered in found]
    return dict(zip(asked.ids, texts, strict=True))


def _threshold(asked: Questions, found: Sequence[Answered]) -> float:
    gold = dict(zip(asked.ids, asked.answers, strict=True))
    none = {name: answered.no_answer for name, answered in zip(asked.ids, found, strict=True)}
    return max(0.0, best_threshold(best_texts(asked, found), gold, none).value)
