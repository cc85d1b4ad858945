"""Analyses of single sentences: explanations of outputs, and the page's documents."""

from dataclasses import dataclass
from typing import Any, TypedDict

import torch

from seqattn.errors import UserError
from seqattn.extras.explain.explanations import explain
from seqattn.extras.explain.explanations.contrast import Contrast
from seqattn.extras.explain.importance import gate_sizes
from seqattn.extras.report.document_types import RunDocument, SentenceDocument
from seqattn.extras.report.run_document import bundle_document
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.serve.examples import ExampleDocument, examples_for, languages_of
from seqattn.extras.serve.model_thread import Alone, Task
from seqattn.extras.serve.outputs import numbers
from seqattn.extras.serve.questions import Spans, source_of
from seqattn.extras.serve.schemas import (
    ExplainRequest,
    ExplainResponse,
    SentenceRequest,
)
from seqattn.extras.serve.searches import (
    Left,
    OnEvent,
    Watch,
    passes_watched,
    search_for,
    watched,
)
from seqattn.extras.serve.texts import Texts


class PageDocument(TypedDict):
    """Overview that the page requests first."""

    run: RunDocument
    asks: bool
    """True if it takes a question and a context."""
    search: str
    """Name of the bundle's own search."""
    searches: list[str]
    """Names of all compatible searches."""
    heads: dict[str, int]
    """Number of gates of each attention."""
    task: str
    """Names of the choices that it was trained with; "" if unknown."""
    data: str
    languages: list[str]
    """Codes of source and target language; [] if unknown."""
    examples: list[ExampleDocument]
    """Inputs to try."""


@dataclass(frozen=True)
class Looks:
    """Analyses of a bundle's outputs for single sentences.

    Args:
        reader: reads and decodes requests.
    """

    reader: Texts | Spans

    @property
    def name(self) -> str:
        """Name of the bundle: that of its run, or of its folder elsewhere."""
        path = self.reader.bundle.path.resolve()
        return path.parent.name if path.name == "model" else path.name

    def page(self) -> PageDocument:
        """Return the overview that the page requests first."""
        bundle, name = self.reader.bundle, self.name
        own = bundle.search()
        look = looks_into([bundle], own)[0]
        usual = [name for name in bundle.searches if type(bundle.search(name)) is type(own)]
        searches = [*bundle.searches] if usual else ["own", *bundle.searches]
        names: Any = bundle.config.get("choices") or {}
        run: RunDocument = {
            "title": name,
            "split": "",
            "score": "",
            "source_use": look.measure,
            "bundles": [bundle_document(name, bundle)],
            "sentences": [],
        }
        return {
            "run": run,
            "asks": "question" in bundle.reads,
            "search": usual[0] if usual else "own",
            "searches": searches,
            "heads": gate_sizes(bundle.model),
            "task": names.get("task", ""),
            "data": names.get("data", ""),
            "languages": languages_of(bundle.config),
            "examples": examples_for(bundle),
        }

    def sentence(self, request: SentenceRequest, on_event: OnEvent | None = None) -> Task:
        """Return the work for a `SentenceDocument`, with progress events if anyone listens.

        Raises:
            TooMuch: for too many tokens.
            UserError: if the request is otherwise invalid.
        """
        job = self.reader.look(request, source_of(request, self.reader.bundle), on_event)

        def document(looks: list[Any]) -> SentenceDocument:
            return {
                "number": 0,
                "text": request.text,
                "context": request.context,
                "references": [],
                "looks": looks,
            }

        return Task([job], document)

    def explain(self, request: ExplainRequest) -> Task:
        """Return the work for an `ExplainResponse`.

        Raises:
            TooMuch: if there are too many tokens.
            UserError: if a method is unknown or not applicable, the text has no words, or the
                bundle's output is empty.
        """
        texts = self.reader.writer()
        source = texts.one_line(source_of(request, self.reader.bundle))
        windows = texts.encode([source])[0]
        texts.limits.check_shown(max(map(len, windows)))
        if not windows[0]:
            raise UserError("text contains no words")
        work = Alone(lambda left: _explained(texts, request, source, windows, left))
        return Task([work], lambda outcomes: outcomes[0])


def _explained(
    texts: Texts, request: ExplainRequest, source: str, windows: list[list[int]], left: Left
) -> ExplainResponse:
    """Return the contributions to an output, for the window that produced it."""
    bundle, tokenizer, number = texts.bundle, texts.bundle.tokenizer, 0
    text, instead, other = request.output, None, None
    if text is None:
        best, number = bundle.best(source, watched(search_for(bundle, None, 1), Watch(left)))
        target = bundle.with_end_mark(best.ids)
        [text] = tokenizer.decode_target([target])
    else:
        [target] = tokenizer.encode_target([text])
    window, device = windows[number], next(bundle.model.parameters()).device
    texts.limits.check_shown(len(window), len(target))
    pieces = tokenizer.target_pieces(target, request.output)
    if request.instead is not None:
        target, ids = Contrast.of(bundle, text, request.instead)
        *pieces, other = [*tokenizer.target_pieces(target), tokenizer.target_pieces(ids)[-1]]
        instead = torch.tensor([ids], device=device)
    read, said = (torch.tensor([row], device=device) for row in (window, target))
    with passes_watched(bundle.model, left):
        explanation = explain(bundle.model, read, said, request.method, instead)
    return ExplainResponse(
        method=request.method,
        text=text,
        source_tokens=tokenizer.source_pieces(window, None if number else source),
        tokens=pieces,
        instead=other,
        source=numbers(explanation.source[0].detach()),
        prefix=numbers(explanation.prefix[0].detach()),
        rest=numbers(explanation.rest[0].detach()),
        windows=len(windows) if len(windows) > 1 else None,
    )
