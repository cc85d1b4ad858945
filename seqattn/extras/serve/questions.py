"""Requests with questions about contexts, answered by spans of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from seqattn.errors import UserError
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import ModelMetrics
from seqattn.extras.serve.model_thread import Alone, Shared, Task
from seqattn.extras.serve.schemas import (
    Answer,
    AnswerRequest,
    AnswerResponse,
    Answers,
    ExplainRequest,
    SentenceRequest,
)
from seqattn.extras.serve.searches import Gone, Left, OnEvent, search_for

WRITES_NOTHING = "this bundle answers with spans and generates no text; use /v1/answer"


def source_of(request: ExplainRequest | SentenceRequest, bundle: Any) -> str:
    """Return the text of a request, or its question and context.

    Raises:
        UserError: if a context is missing or unexpected.
    """
    asks = "context" in bundle.reads
    if asks != (request.context is not None):
        raise UserError("missing required key: context" if asks else "this bundle takes no context")
    source: str = bundle.source_of(request.text, request.context) if asks else request.text
    return source


def pairs_of(request: AnswerRequest, limits: Limits) -> list[tuple[str, str]]:
    """Return questions with their contexts; a single context serves all questions.

    Raises:
        TooMuch: if there are too many questions.
        UserError: if the numbers of contexts and questions differ.
    """
    questions = [request.question] if isinstance(request.question, str) else request.question
    contexts = request.context
    if isinstance(contexts, str):
        contexts = [contexts] * len(questions)
    if len(contexts) != len(questions):
        raise UserError(f"context must be one text, or one for each of {len(questions)} questions")
    limits.check("inputs", len(questions), "questions")
    limits.check("characters", sum(map(len, [*questions, *contexts])))
    return list(zip(questions, contexts, strict=True))


@dataclass(frozen=True)
class Spans:
    """Answers by spans. Args: bundle: the model; limits: of a request; metrics: counts tokens."""

    bundle: Any
    limits: Limits
    metrics: ModelMetrics

    def answer(self, request: AnswerRequest) -> Task:
        """Return the work for an `AnswerResponse`.

        Raises:
            TooMuch: if there are too many questions or tokens.
            UserError: if the request is otherwise invalid.
        """
        pairs = pairs_of(request, self.limits)
        search = search_for(self.bundle, request.generation, request.n_best)
        read = self.bundle.encoder.reader
        sizes = [len(read.question(one).ids) + len(read.context(two).ids) for one, two in pairs]
        self.limits.check("tokens", sum(sizes))

        def response(outcomes: list[Any]) -> AnswerResponse:
            self.metrics.tokens(sum(sizes), 0)
            return AnswerResponse(results=list(map(_answers, outcomes)))

        jobs = [Shared(search, pair, size) for pair, size in zip(pairs, sizes, strict=True)]
        return Task(jobs, response)

    def writer(self) -> NoReturn:
        """Raise UserError for requests that need a text model.

        Raises:
            UserError: always.
        """
        raise UserError(WRITES_NOTHING)

    def look(self, request: SentenceRequest, source: str, on_event: OnEvent | None) -> Alone:
        """Return the work for a document of one question.

        Raises:
            UserError: if the request has settings of text models.
        """
        if request.prefix is not None:
            raise UserError("this bundle answers with spans and generates no text; remove prefix")
        if request.intervene is not None and request.intervene.weights:
            raise UserError("intervene.weights requires a bundle that generates text; remove it")
        question = AnswerRequest.model_construct(
            question=request.text, context=request.context, generation=request.generation, n_best=1
        )
        (job,) = self.answer(question).jobs
        assert isinstance(job, Shared)
        search, tokens = job.search, job.tokens

        def look(left: Left) -> Any:
            into: Any = looks_into([self.bundle], search)[0]
            with intervened(self.bundle.model, request.intervene):
                document = into.document(request.text, [], request.context or "")
            document["score"] = None  # no correct answers are known
            self.metrics.tokens(tokens, 0)
            return document

        return Alone(look)

    def search(self, search: Any, pairs: Sequence[tuple[str, str]], left: Left) -> list[Any]:
        """Answer several questions with one search."""
        questions, contexts = zip(*pairs, strict=True)
        answerer = self.bundle.answerer(search)

        def encode(questions: Sequence[str], contexts: Sequence[str]) -> Iterator[Any]:
            for windows in answerer.encode(questions, contexts):
                if left():
                    raise Gone
                yield windows

        return replace(answerer, encode=encode).answer(questions, contexts)


def _answers(answered: Any) -> Answers:
    answers = [
        Answer(text=a.text, start=a.start, end=a.end, probability=round(a.probability, 6))
        for a in answered.answers
    ]
    return Answers(answers=answers, no_answer=round(answered.no_answer, 6))
