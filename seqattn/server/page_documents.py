"""What the page asks for: the report's documents, made of the sentence that somebody types."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from seqattn.analysis.importance import gate_sizes
from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.report.document_types import (
    AnswerLookDocument,
    LookDocument,
    RunDocument,
    SentenceDocument,
)
from seqattn.report.question_document import QuestionLook
from seqattn.report.run_document import bundle_document
from seqattn.report.sentences import looks_into
from seqattn.report.text_document import TextLook
from seqattn.server.answers import Spans
from seqattn.server.interventions import intervened
from seqattn.server.model_thread import Alone, Shared
from seqattn.server.schemas import AnswerRequest, GenerateRequest, SentenceRequest
from seqattn.server.searches import beams_of
from seqattn.server.streams import Event, Tell
from seqattn.server.texts import Input, Texts, Watch, check_prefix, watched


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


@dataclass(frozen=True)
class Sentences:
    """Looks into what a bundle makes of single sentences.

    Args:
        bundle: of texts or spans.
        texts: reads and searches, of a bundle that writes.
        spans: of one that answers by spans.
        asks: whether a sentence is a question with its context.
    """

    bundle: TextBundle | SpanBundle
    texts: Texts | None
    spans: Spans | None
    asks: bool

    def page(self) -> PageDocument:
        """What the page asks for first."""
        own = self.bundle.search()
        look = looks_into([self.bundle], own)[0]
        named = {"spans": own} if self.spans else {n: self.bundle.search(n) for n in _WRITING}
        name = self.bundle.path.resolve().parent.name
        run: RunDocument = {
            "title": name,
            "split": "",
            "score": "",
            "source_use": look.measure if isinstance(look, TextLook) else "",
            "bundles": [bundle_document(name, self.bundle)],
            "sentences": [],
        }
        return {
            "run": run,
            "asks": self.asks,
            "search": next(name for name, one in named.items() if type(one) is type(own)),
            "searches": list(named),
            "heads": gate_sizes(self.bundle.model),
        }

    def read(self, asked: SentenceRequest) -> Input | Shared:
        """The sentence of a request.

        Raises:
            Refused: for too many tokens.
            UserError: for anything else that does not fit.
        """
        if self.asks != (asked.context is not None):
            line = "a question needs its context" if self.asks else "this bundle takes no context"
            raise UserError(line)
        if self.texts is not None:
            keys = asked.model_dump(include={"prefix", "stream"})
            keys |= {"inputs": [self._source(asked)], "intervene": asked.intervene}
            return self.texts.read(
                GenerateRequest.model_construct(generation=asked.generation, **keys)
            )[0]
        assert self.spans is not None
        if asked.prefix is not None:
            raise UserError("this bundle answers by spans and writes nothing; leave prefix out")
        if asked.intervene is not None and asked.intervene.weights:
            raise UserError("intervene.weights takes bundles that write; this one answers by spans")
        question = AnswerRequest.model_construct(
            question=asked.text, context=asked.context, generation=asked.generation, n_best=1
        )
        return self.spans.jobs(question)[0]

    def job(
        self,
        asked: SentenceRequest,
        one: Input | Shared,
        tell: Tell | None = None,
        gone: threading.Event | None = None,
    ) -> Alone:
        """Makes a `SentenceDocument`, and tells of each step on the way."""
        if isinstance(one, Shared):
            return Alone(partial(self._answer, asked, one))
        watch = Watch(one.place, tell if len(one.windows) == 1 else None, gone or threading.Event())
        return Alone(partial(self._text, asked, one, watch))

    def event(self, one: Input | Shared, event: Event) -> str:
        """What a client is told of a step."""
        assert self.texts is not None
        assert isinstance(one, Input)
        return self.texts.event([one], event)

    def _source(self, asked: SentenceRequest) -> str:
        return asked.text if asked.context is None else question_source(asked.text, asked.context)

    def _text(self, asked: SentenceRequest, one: Input, watch: Watch) -> SentenceDocument:
        model, source, search = self.bundle.model, self._source(asked), watched(one.search, watch)
        found = looks_into([self.bundle], search)[0]
        assert isinstance(found, TextLook)
        look = replace(found, passes=partial(intervened, model, asked.intervene))
        with intervened(model, asked.intervene, beams_of(search)):
            searched = look.searched(source)
        best = searched.hypotheses[0]
        check_prefix(one, best)
        assert self.texts is not None
        self.texts.figures.tokens(one.size, len(best.ids) + 1)
        return _document(asked, look.looked(source, searched, []))

    def _answer(self, asked: SentenceRequest, one: Shared) -> SentenceDocument:
        look = looks_into([self.bundle], one.search)[0]
        assert isinstance(look, QuestionLook)
        assert self.spans is not None
        with intervened(self.bundle.model, asked.intervene):
            made = look.document(asked.text, asked.context or "", [])
        made["score"] = None  # nobody says what is right
        self.spans.figures.tokens(one.tokens, 0)
        return _document(asked, made)


def _document(asked: SentenceRequest, look: LookDocument | AnswerLookDocument) -> SentenceDocument:
    return {
        "number": 0,
        "text": asked.text,
        "context": asked.context,
        "references": [],
        "looks": [look],
    }
