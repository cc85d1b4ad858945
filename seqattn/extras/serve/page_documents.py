"""What the page asks for: the report's documents, made of the sentence that somebody types."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypedDict

from seqattn.errors import UserError
from seqattn.extras.explain.importance import gate_sizes
from seqattn.extras.report.document_types import (
    AnswerLookDocument,
    LookDocument,
    RunDocument,
    SentenceDocument,
)
from seqattn.extras.report.question_document import QuestionLook
from seqattn.extras.report.run_document import bundle_document
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.report.text_document import TextLook
from seqattn.extras.serve.answers import Spans, source_of
from seqattn.extras.serve.checks import check_prefix, one_line
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.model_thread import Alone, Shared
from seqattn.extras.serve.schemas import AnswerRequest, GenerateRequest, SentenceRequest
from seqattn.extras.serve.searches import beams_of
from seqattn.extras.serve.streams import Event, Tell
from seqattn.extras.serve.texts import Input, Texts, watch_of
from seqattn.extras.serve.watching import Left, passes_watched, watched


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
class Sentences:
    """Looks into what a bundle makes of single sentences.

    Args:
        reader: reads and searches.
        asks: whether a sentence is a question with its context.
    """

    reader: Texts | Spans
    asks: bool

    def page(self) -> PageDocument:
        """What the page asks for first."""
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

    def read(self, asked: SentenceRequest) -> Input | Shared:
        """The sentence of a request.

        Raises:
            HTTPException: 413 for too many tokens.
            UserError: for anything else that does not fit.
        """
        source = source_of(asked, self.asks)
        if isinstance(self.reader, Texts):
            keys = {name: getattr(asked, name) for name in _OF_A_TEXT}
            request = GenerateRequest.model_construct(
                inputs=[one_line(self.reader.bundle, source)], **keys
            )
            one = self.reader.read(request).inputs[0]
            self.reader.check_shown(max(one.windows, key=len))
            return one
        if asked.prefix is not None:
            raise UserError("this bundle answers by spans and writes nothing; leave prefix out")
        if asked.intervene is not None and asked.intervene.weights:
            raise UserError("intervene.weights takes bundles that write; this one answers by spans")
        question = AnswerRequest.model_construct(
            question=asked.text, context=asked.context, generation=asked.generation, n_best=1
        )
        return self.reader.jobs(question)[0]

    def job(
        self,
        asked: SentenceRequest,
        one: Input | Shared,
        tell: Tell | None = None,
    ) -> Alone:
        """Makes a `SentenceDocument`, and tells of each step on the way."""
        if isinstance(one, Shared):
            return Alone(lambda left: self._answer(asked, one))
        return Alone(lambda left: self._text(asked, one, left, tell))

    def event(self, one: Input | Shared, event: Event) -> str:
        """What a client is told of a step."""
        assert isinstance(self.reader, Texts)
        assert isinstance(one, Input)
        return self.reader.event([one], event)

    def _text(
        self, asked: SentenceRequest, one: Input, left: Left, tell: Tell | None
    ) -> SentenceDocument:
        assert isinstance(self.reader, Texts)
        bundle = self.reader.bundle
        source = one_line(bundle, source_of(asked, self.asks))
        model, search = bundle.model, watched(one.search, watch_of(one, left, tell))
        found = looks_into([bundle], search)[0]
        assert isinstance(found, TextLook)

        @contextmanager
        def passes() -> Iterator[None]:
            with passes_watched(model, left), intervened(model, asked.intervene):
                yield

        look = replace(found, passes=passes)
        with intervened(model, asked.intervene, beams_of(search)):
            searched = look.searched(source)
        best = searched.hypotheses[0]
        check_prefix(one, best)
        self.reader.figures.tokens(one.size, len(best.ids) + 1)
        self.reader.check_shown(searched.source, best.ids)
        return _document(asked, look.looked(source, searched, []))

    def _answer(self, asked: SentenceRequest, one: Shared) -> SentenceDocument:
        bundle = self.reader.bundle
        look = looks_into([bundle], one.search)[0]
        assert isinstance(look, QuestionLook)
        with intervened(bundle.model, asked.intervene):
            made = look.document(asked.text, asked.context or "", [])
        made["score"] = None  # nobody says what is right
        self.reader.figures.tokens(one.tokens, 0)
        return _document(asked, made)


def _document(asked: SentenceRequest, look: LookDocument | AnswerLookDocument) -> SentenceDocument:
    return {
        "number": 0,
        "text": asked.text,
        "context": asked.context,
        "references": [],
        "looks": [look],
    }
