"""Answers to questions, and explanations of outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from seqattn.bundle.bundle import Bundle, SpanBundle
from seqattn.bundle.nodes import TARGET, import_path
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import explain
from seqattn.extras.serve.checks import one_line, too_many
from seqattn.extras.serve.figures import Figures
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import Shared
from seqattn.extras.serve.outputs import numbers
from seqattn.extras.serve.schemas import (
    Answer,
    AnswerRequest,
    Answers,
    ExplainRequest,
    ExplainResponse,
    SentenceRequest,
)
from seqattn.extras.serve.searches import search_for
from seqattn.extras.serve.texts import Texts
from seqattn.extras.serve.watching import Gone, Left, Watch, passes_watched, watched
from seqattn.generation.span_search import Answered, SpanWindows


def reads_questions(bundle: Bundle) -> bool:
    """Whether it was trained on questions with contexts."""
    node = bundle.config.get("task")
    task = import_path(node[TARGET], "task") if isinstance(node, dict) else None
    return isinstance(bundle, SpanBundle) or getattr(task, "reads", "pairs") == "questions"


def source_of(asked: ExplainRequest | SentenceRequest, asks: bool) -> str:
    """The text of a request, or its question with the context.

    Raises:
        UserError: for a context that is not there, or not asked for.
    """
    if asks != (asked.context is not None):
        raise UserError("a question needs its context" if asks else "this bundle takes no context")
    return asked.text if asked.context is None else question_source(asked.text, asked.context)


def pairs_of(asked: AnswerRequest, limits: Limits) -> list[tuple[str, str]]:
    """Questions with their contexts; one context serves all questions.

    Raises:
        UserError: where there are more contexts than questions, or less.
    """
    questions = [asked.question] if isinstance(asked.question, str) else asked.question
    contexts = asked.context
    if isinstance(contexts, str):
        contexts = [contexts] * len(questions)
    if len(contexts) != len(questions):
        raise UserError(f"context must be a text or one for each of {len(questions)} questions")
    if len(questions) > limits.inputs:
        raise too_many("questions", limits.inputs, len(questions))
    return list(zip(questions, contexts, strict=True))


@dataclass(frozen=True)
class Spans:
    """Answers by spans. Args: bundle: the model; limits: of a request; figures: told of tokens."""

    bundle: SpanBundle
    limits: Limits
    figures: Figures

    def jobs(self, asked: AnswerRequest) -> list[Shared]:
        """A job for each question, which gives an `Answered`.

        Raises:
            HTTPException: 413 for too many questions or tokens.
            UserError: for anything else that does not fit.
        """
        pairs = pairs_of(asked, self.limits)
        search = search_for(self.bundle, asked.generation, asked.n_best)
        texts = [" ".join(pair) for pair in pairs]
        sizes = list(map(len, self.bundle.tokenizer.encode_source(texts)))
        if sum(sizes) > self.limits.tokens:
            raise too_many("tokens", self.limits.tokens, sum(sizes))
        return [Shared(search, pair, size) for pair, size in zip(pairs, sizes, strict=True)]

    def search(self, search: Any, pairs: Sequence[tuple[str, str]], left: Left) -> list[Answered]:
        """Answers to several questions with one search."""
        questions, contexts = zip(*pairs, strict=True)
        answerer = self.bundle.answerer(search)

        def encode(questions: Sequence[str], contexts: Sequence[str]) -> Iterator[SpanWindows]:
            for windows in answerer.encode(questions, contexts):
                if left():
                    raise Gone
                yield windows

        return replace(answerer, encode=encode).answer(questions, contexts)

    def told(self, job: Shared, found: Answered) -> Answers:
        """The result of a question."""
        self.figures.tokens(job.tokens, 0)
        answers = [
            Answer(text=a.text, start=a.start, end=a.end, probability=round(a.probability, 6))
            for a in found.answers
        ]
        return Answers(answers=answers, no_answer=round(found.no_answer, 6))


def explained(texts: Texts, asked: ExplainRequest, source: str, left: Left) -> ExplainResponse:
    """Contributions to an output; runs the model.

    Raises:
        HTTPException: 413 for too many tokens.
        UserError: for a method that is not there or cannot be had, or a text of no words.
    """
    bundle, tokenizer = texts.bundle, texts.bundle.tokenizer
    source = one_line(bundle, source)
    windows, number = texts.encode([source])[0], 0
    texts.check_shown(max(windows, key=len))
    if not windows[0]:
        raise UserError("text must hold some words")
    if asked.output is None:
        best, number = bundle.best(source, watched(search_for(bundle, None, 1), Watch(left)))
        target = bundle.ended(best.ids)
    else:
        target = tokenizer.encode_target([asked.output])[0]
    window = windows[number]
    texts.check_shown(window, target)
    device = next(bundle.model.parameters()).device
    read, said = (torch.tensor([row], device=device) for row in (window, target))
    with passes_watched(bundle.model, left):
        found = explain(bundle.model, read, said, asked.method)
    return ExplainResponse(
        method=asked.method,
        text=tokenizer.decode_target([target])[0] if asked.output is None else asked.output,
        source_tokens=tokenizer.source_pieces(window, None if number else source),
        tokens=tokenizer.target_pieces(target, asked.output),
        source=numbers(found.source[0].detach()),
        prefix=numbers(found.prefix[0].detach()),
        rest=numbers(found.rest[0].detach()),
        windows=len(windows) if len(windows) > 1 else None,
    )
