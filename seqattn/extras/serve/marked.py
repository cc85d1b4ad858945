"""Requests with markup: generated as plain segments, and put together again."""

from dataclasses import replace
from typing import Any

from seqattn.errors import UserError
from seqattn.extras.serve.model_thread import Task
from seqattn.extras.serve.schemas import (
    Alignment,
    Generated,
    GenerateRequest,
    GenerateResponse,
    Output,
)
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build


def marked(work: Any, request: GenerateRequest) -> Task:
    """Return the work for a request with a format other than text. Args: work: its `Texts`."""
    keys = [name for name in ("prefix", "intervene", "stream") if getattr(request, name)]
    keys += [f"return={part}" for part in request.parts if part != "scores"]
    if keys:
        raise UserError(f"format={request.format} does not support {', '.join(keys)}; remove it")
    known = choices("markup")
    if request.format not in known:
        raise UserError(f"format={request.format} needs an extra that is not installed")
    markup: Any = build(known[request.format])
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    documents = [markup.document(text) for text in texts]
    segments = [segment for document in documents for segment in document.segments]
    linked = any(segment.linked for segment in segments)
    plain = {
        "inputs": [segment.text for segment in segments],
        "format": "text",
        "parts": ["alignment"] if linked else [],
    }
    aligned = replace(work, bundle=replace(work.bundle, words_by=markup.words_by))
    jobs, response = aligned.generate(request.model_copy(update=plain))

    def output(document: Any, results: list[Generated], rank: int) -> Output:
        each = [result.outputs[min(rank, len(result.outputs) - 1)] for result in results]
        restored = document.restored(
            [
                segment.restored(one.text, _links(segment, one.alignment))
                for segment, one in zip(document.segments, each, strict=True)
            ]
        )
        unmet = [term for one in each for term in one.unmet or ()]
        return Output(text=restored.text, lost=restored.lost or None, unmet=unmet or None)

    def together(outcomes: list[Any]) -> GenerateResponse:
        done = response(outcomes)
        rest, results = iter(done.results), []
        for document in documents:
            own = [next(rest) for _ in document.segments]
            ranks = max((len(one.outputs) for one in own), default=1)
            outputs = [output(document, own, rank) for rank in range(ranks)]
            results.append(Generated(outputs=outputs))
        return GenerateResponse(results=results, notices=done.notices)

    return Task(jobs, together)


def _links(segment: Any, words: Alignment | None) -> Any:
    return segment.links(words.source, words.output, words.links) if words else ()
