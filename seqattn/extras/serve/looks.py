"""Looks into single sentences: explanations of outputs, and the documents of the page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch

from seqattn.errors import UserError
from seqattn.extras.explain.explanations import explain
from seqattn.extras.explain.importance import gate_sizes
from seqattn.extras.report.document_types import RunDocument, SentenceDocument
from seqattn.extras.report.question_document import QuestionLook
from seqattn.extras.report.run_document import bundle_document
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.report.text_document import TextLook
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.model_thread import Alone, Shared, Task
from seqattn.extras.serve.outputs import check_prefix, numbers
from seqattn.extras.serve.questions import WRITES_NOTHING, Spans, source_of
from seqattn.extras.serve.schemas import (
    AnswerRequest,
    ExplainRequest,
    ExplainResponse,
    GenerateRequest,
    SentenceRequest,
)
from seqattn.extras.serve.searches import (
    Left,
    Tell,
    Watch,
    input_search,
    passes_watched,
    search_for,
    watched,
)
from seqattn.extras.serve.texts import Texts


class PageDocument(TypedDict):
    """What the page asks for first."""

    run: RunDocument
    asks: bool
    """Whether it takes a question and a context."""
    search: str
    """The name of the bundle's own search."""
    searches: list[str]
    """All that fit."""
    heads: dict[str, int]
    """How many gates each attention has."""


_WRITING = ("greedy", "beam", "sampling")
_OF_A_TEXT = ("generation", "prefix", "intervene", "stream")


@dataclass(frozen=True)
class Looks:
    """Looks into what a bundle makes of single sentences.

    Args:
        reader: reads and searches.
        asks: whether a sentence is a question with its context.
    """

    reader: Texts | Spans
    asks: bool

    def page(self) -> PageDocument:
        """Return what the page asks for first."""
        bundle = self.reader.bundle
        own = bundle.search()
        look = looks_into([bundle], own)[0]
        spans = isinstance(self.reader, Spans)
        named = {"spans": own} if spans else {name: bundle.search(name) for name in _WRITING}
        name = bundle.path.resolve().parent.name
        run: RunDocument = {
            "title": name,
            "split": "",
            "score": "",
            "source_use": look.measure if isinstance(look, TextLook) else "",
            "bundles": [bundle_document(name, bundle)],
            "sentences": [],
        }
        return {
            "run": run,
            "asks": self.asks,
            "search": next(name for name, one in named.items() if type(one) is type(own)),
            "searches": list(named),
            "heads": gate_sizes(bundle.model),
        }

    def sentence(self, request: SentenceRequest, tell: Tell | None = None) -> Task:
        """Return the work for a `SentenceDocument`, whose steps are told if anybody is to know.

        Raises:
            TooMuch: for too many tokens.
            UserError: for anything else that does not fit.
        """
        source = source_of(request, self.asks)
        if isinstance(self.reader, Texts):
            job = self._text(self.reader, request, self.reader.one_line(source), tell)
        else:
            job = self._question(self.reader, request)

        def document(looks: list[Any]) -> SentenceDocument:
            return {
                "number": 0,
                "text": request.text,
                "context": request.context,
                "references": [],
                "looks": looks,
            }

        return Task([job], document)

    def _text(
        self, texts: Texts, request: SentenceRequest, source: str, tell: Tell | None
    ) -> Alone:
        keys = {name: getattr(request, name) for name in _OF_A_TEXT}
        (one,), _ = texts.read(GenerateRequest.model_construct(inputs=[source], **keys))
        texts.limits.check_shown(len(one.longest))
        model = texts.bundle.model

        def look(left: Left) -> Any:
            @contextmanager
            def passes() -> Iterator[None]:
                with passes_watched(model, left), intervened(model, request.intervene):
                    yield

            search = input_search(one, left, tell)
            into = looks_into([texts.bundle], search)[0]
            assert isinstance(into, TextLook)
            with intervened(model, request.intervene, search.beams):
                searched = into.searched(source)
            best = searched.hypotheses[0]
            check_prefix(one, best)
            texts.metrics.tokens(one.size, len(best.ids) + 1)
            texts.limits.check_shown(len(searched.source), len(best.ids))
            return replace(into, passes=passes).looked(source, searched, [])

        return Alone(look)

    def _question(self, spans: Spans, request: SentenceRequest) -> Alone:
        if request.prefix is not None:
            raise UserError("this bundle answers by spans and writes nothing; leave prefix out")
        if request.intervene is not None and request.intervene.weights:
            raise UserError("intervene.weights takes bundles that write; this one answers by spans")
        question = AnswerRequest.model_construct(
            question=request.text, context=request.context, generation=request.generation, n_best=1
        )
        (job,) = spans.answer(question).jobs
        assert isinstance(job, Shared)
        search, tokens = job.search, job.tokens

        def look(left: Left) -> Any:
            into = looks_into([spans.bundle], search)[0]
            assert isinstance(into, QuestionLook)
            with intervened(spans.bundle.model, request.intervene):
                made = into.document(request.text, request.context or "", [])
            made["score"] = None  # nobody says what is right
            spans.metrics.tokens(tokens, 0)
            return made

        return Alone(look)

    def explain(self, request: ExplainRequest) -> Task:
        """Return the work for an `ExplainResponse`.

        Raises:
            TooMuch: for too many tokens.
            UserError: for a method that is not there or cannot be had, a text of no words, or a
                bundle that writes nothing.
        """
        texts = self.reader
        if isinstance(texts, Spans):
            raise UserError(WRITES_NOTHING)
        source = texts.one_line(source_of(request, self.asks))
        windows = texts.encode([source])[0]
        texts.limits.check_shown(max(map(len, windows)))
        if not windows[0]:
            raise UserError("text must hold some words")
        work = Alone(lambda left: _explained(texts, request, source, windows, left))
        return Task([work], lambda outcomes: outcomes[0])


def _explained(
    texts: Texts, request: ExplainRequest, source: str, windows: list[list[int]], left: Left
) -> ExplainResponse:
    """Return the contributions to an output, of the window of which it is made."""
    bundle, tokenizer, number = texts.bundle, texts.bundle.tokenizer, 0
    if request.output is None:
        best, number = bundle.best(source, watched(search_for(bundle, None, 1), Watch(left)))
        target = bundle.ended(best.ids)
    else:
        target = tokenizer.encode_target([request.output])[0]
    window = windows[number]
    texts.limits.check_shown(len(window), len(target))
    device = next(bundle.model.parameters()).device
    read, said = (torch.tensor([row], device=device) for row in (window, target))
    with passes_watched(bundle.model, left):
        explanation = explain(bundle.model, read, said, request.method)
    return ExplainResponse(
        method=request.method,
        text=tokenizer.decode_target([target])[0] if request.output is None else request.output,
        source_tokens=tokenizer.source_pieces(window, None if number else source),
        tokens=tokenizer.target_pieces(target, request.output),
        source=numbers(explanation.source[0].detach()),
        prefix=numbers(explanation.prefix[0].detach()),
        rest=numbers(explanation.rest[0].detach()),
        windows=len(windows) if len(windows) > 1 else None,
    )
