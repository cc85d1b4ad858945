"""A run on questions that are answered by spans of their contexts."""

from dataclasses import replace
from operator import attrgetter
from typing import Any

from matplotlib.figure import Figure

from seqattn.analysis.look import Sentence, look_at_question
from seqattn.cli.build import make, optimization
from seqattn.cli.job import Job
from seqattn.data.span_batch import Questions
from seqattn.data.span_encode import SpanEncoder
from seqattn.data.span_module import SpanData
from seqattn.generation.spans import Answered, Answerer, SpanSearch
from seqattn.metrics.qa import QaScorer
from seqattn.metrics.text import TextScore, named
from seqattn.metrics.threshold import best_threshold
from seqattn.models.span import SpanModel
from seqattn.tasks.span import SpanTask, SpanValidation
from seqattn.training.callbacks import Throughput

Config = dict[str, Any]


class SpansJob(Job):
    """The part of a run that knows it learns to answer by spans.

    Args:
        config: resolved; its `generation.threshold` becomes the one that scores best, where the
            validation split has questions without an answer.
        data: set up.
        model: initialised.
    """

    task: SpanTask

    def __init__(self, config: Config, data: SpanData, model: SpanModel) -> None:
        self.config = config
        self.data = data
        self.model = model
        self.throughput = Throughput("context tokens", attrgetter("context_tokens"))
        self.questions = data.rows("val")
        search: SpanSearch = make(config["generation"])
        self.answerer = Answerer(model, data.encoder(), replace(search, threshold=1.0))
        plan = config["task"]["validation"]
        validation = SpanValidation(
            Answerer(model, data.encoder(), search),
            lambda: self.questions,
            plan["every"],
            plan["sentences"],
        )
        self.task = SpanTask(model, optimization(config, model), validation)

    def scores(self, count: int | None) -> Config:
        whole = self.questions
        asked = Questions(
            whole.ids[:count],
            whole.questions[:count],
            whole.contexts[:count],
            whole.answers[:count],
        )
        self.model.to(self.task.device)
        found = self.answerer.answer(asked.questions, asked.contexts)
        if not all(asked.answers):
            self.config["generation"]["threshold"] = _threshold(asked, found)
        found = [answered.within(self.config["generation"]["threshold"]) for answered in found]
        return named(scored(make(self.config["task"]["scorer"]), asked, found), "val")

    def samples(self) -> list[tuple[str, str, str]]:
        return [
            (s.question, s.answer or "(no answer)", " | ".join(s.references) or "(no answer)")
            for s in self.task.samples
        ]

    def draw(self) -> Figure | None:
        """What the context asks in the first validation question."""
        asked = self.questions
        return question_figure(
            self.model, self.data.encoder(), asked.questions[0], asked.contexts[0]
        )


def question_figure(
    model: SpanModel, encoder: SpanEncoder, question: str, context: str
) -> Figure | None:
    """Heatmap of one question on the first window of its context; None without weights to show."""
    batch = next(encoder([question], [context]))
    pieces = encoder.reader.tokenizer.source_pieces
    asked, read = ([int(token) for token in ids[0]] for ids in (batch.question, batch.context))
    return look_at_question(
        model,
        Sentence(asked, pieces(asked)),
        Sentence(read, pieces(read)),
        batch.to(next(model.parameters()).device),
    )


def scored(scorer: QaScorer, asked: Questions, found: list[Answered]) -> list[TextScore]:
    """Scores of the answers to some questions."""
    gold = dict(zip(asked.ids, asked.answers, strict=True))
    return scorer.score(best_texts(asked, found), gold)


def best_texts(asked: Questions, found: list[Answered]) -> dict[str, str]:
    """The best answer to each question by its id, "" for none."""
    texts = [answered.answers[0].text if answered.answers else "" for answered in found]
    return dict(zip(asked.ids, texts, strict=True))


def _threshold(asked: Questions, found: list[Answered]) -> float:
    gold = dict(zip(asked.ids, asked.answers, strict=True))
    none = {name: answered.no_answer for name, answered in zip(asked.ids, found, strict=True)}
    return max(0.0, best_threshold(best_texts(asked, found), gold, none).value)
