"""Bundles that answer questions: by spans of their contexts, or with generated texts."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.bundle import Bundle, Choice
from seqattn.bundle.outputs import Rank
from seqattn.bundle.text_arguments import TextOrTexts, paired
from seqattn.errors import UserError
from seqattn.extras.answers.asked import (
    EXPECTED,
    Asked,
    question_source,
    read_questions,
)
from seqattn.extras.answers.outputs import Answers
from seqattn.extras.answers.question_reading import WindowReading, read_windows
from seqattn.extras.answers.scorers import f1
from seqattn.extras.answers.span_batch import Questions, SpanEncoder
from seqattn.extras.answers.span_search import Answered, Answerer, SpanSearch
from seqattn.extras.answers.span_text import cut_words
from seqattn.generation.base import Progress
from seqattn.generation.generator import Generator


class Asking:
    """Part of a bundle whose inputs are questions with their contexts."""

    reads: ClassVar[Sequence[str]] = ("question", "context")
    form: ClassVar[str] = EXPECTED

    def as_input(self, *values: str) -> Asked:
        question, context = values
        return Asked(question, context, None)

    def read_inputs(self, path: Path | None) -> Iterator[list[tuple[int, Asked]]]:
        return read_questions(path)

    def source_of(self, question: str, context: str) -> str:
        """Return the text of a question with its context, as a generative model reads it."""
        return question_source(question, context)


@dataclass(repr=False)
class AnsweringBundle(Asking, Bundle):
    """A bundle that generates answers to questions (task=qa_generative); see `answer`.

    Attributes: as `Bundle`.
    """

    pictures: ClassVar[str] = "seqattn.extras.answers.pictures.AnswerPictures"
    """Path of the class of its pictures."""

    def answer(
        self,
        questions: TextOrTexts,
        contexts: TextOrTexts,
        generation: Choice = None,
        **settings: Any,
    ) -> list[str]:
        """Generate the best answer to each question on its context.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation, **settings: as `generate`.
        """
        pairs = zip(*paired(questions, contexts, self.reads), strict=True)
        return self.generate([question_source(*pair) for pair in pairs], generation, **settings)

    def answer_rows(
        self, asked: Sequence[Asked], search: Choice, count: int, progress: Progress | None,
        first: int = 0,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Return an answer to each question as plain values; see `SpanBundle.answer_rows`.

        Raises:
            UserError: if several answers are requested.
        """
        if count > 1:
            raise UserError("this bundle generates one answer per question; remove n_best")
        read = self.lines([self.source_of(one.question, one.context) for one in asked])
        encoded, places = self.encode(read.lines), [first + number for number in read.texts]
        lists = self.generator(search).generate_windows(encoded, places, progress)
        answers = read.join(self.tokenizer.decode_target([best[0].ids for best in lists]))
        return [one.plain() | {"answer": text} for one, text in zip(asked, answers, strict=True)]


@dataclass(repr=False)
class SpanBundle(Asking, Bundle):
    """A bundle that answers questions by spans of their contexts (task=qa); see `answer`.

    Attributes: as `Bundle`.
    """

    model: Any
    """A `SpanModel`."""
    batches: ClassVar[str] = "spans"
    output: ClassVar[str] = "spans"
    unit: ClassVar[str] = "questions"
    searches: ClassVar[Sequence[str]] = ("spans",)
    pictures: ClassVar[str] = "seqattn.extras.answers.pictures.QuestionPictures"

    def answer(
        self,
        questions: TextOrTexts,
        contexts: TextOrTexts,
        generation: Choice = None,
        **settings: Any,
    ) -> list[Answered]:
        """Return answers to each question, best first, with characters and probabilities.

        Args:
            questions: N, or one.
            contexts: the context of each.
            generation, **settings: as `search`, such as answers=3.
        """
        pairs = paired(questions, contexts, self.reads)
        return self.answerer(generation, **settings).answer(*pairs)

    def answerer(self, generation: Choice = None, **settings: Any) -> Answerer:
        """Return the search bound to the model. Args: as `search`."""
        return Answerer(self.model, self.encoder, self.search(generation, **settings))

    @property
    def encoder(self) -> SpanEncoder:
        """Encoder of questions and contexts into batches, as in training."""
        return SpanEncoder(self.tokenizer, self.loader)

    def texts(self, use: str) -> Bundle:
        raise UserError(f"{use} needs a bundle that outputs text, but {self.path} outputs spans")

    def with_target_prefix(self, search: Any) -> Any:
        return search

    def generator(self, generation: Choice = None, **settings: Any) -> Generator:
        return self.texts("generate").generator(generation, **settings)

    def check(self) -> None:
        self.answerer()

    def rows(self, table: Any, split: str) -> Questions:
        return Questions.of(table)

    def outputs(
        self,
        rows: Any,
        search: Choice = None,
        progress: Progress | None = None,
        rank: Rank | None = None,
        split: Any = None,
    ) -> Answers:
        """Return answers; see `Bundle`. Args: rank, split: not used, as they are for texts."""
        began = time.perf_counter()
        answers = self.answerer(search).answer(rows.sources, rows.contexts, progress)
        return Answers.of(rows, answers, time.perf_counter() - began)

    def answer_rows(
        self, asked: Sequence[Asked], search: Choice, count: int, progress: Progress | None,
        first: int = 0,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Return answers to each question, best first, as plain values by name.

        Args:
            search: the search, already set to give `count` answers if it can.
            count: requested number of answers to each question.
            progress: called after each batch.
            first: the first question's index in the user's input.
        """
        questions, contexts = [one.question for one in asked], [one.context for one in asked]
        answers = self.answerer(search).answer(questions, contexts, progress)
        return [one.plain() | best.plain() for one, best in zip(asked, answers, strict=True)]

    def windows(self, search: SpanSearch, question: str, context: str) -> list[WindowReading]:
        """Read a question with each window of its context."""
        return read_windows(self.model, search, self.encoder([question], [context]))

    def question_pieces(self, ids: Sequence[int], question: str) -> list[str]:
        """Return the piece of text of each token of a question."""
        return self.tokenizer.source_pieces(ids, cut_words(question).text)

    def f1(self, answer: str, answers: Sequence[str]) -> float:
        """Return the token F1 of an answer against the right ones, from 0 to 1."""
        return f1(answer, answers)
