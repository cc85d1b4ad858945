"""A sentence as several bundles see it."""

from collections.abc import Sequence
from typing import Any

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.extras.explain.explanations import known_methods
from seqattn.extras.report.contributions import USUAL, source_measure
from seqattn.extras.report.document_types import SentenceDocument, SummaryDocument
from seqattn.extras.report.question_document import QuestionLook
from seqattn.extras.report.text_document import TextLook

Look = TextLook | QuestionLook


def looks_into(
    bundles: Sequence[TextBundle | SpanBundle],
    search: Any,
    methods: Sequence[str] | None = None,
    tokens: int = 100,
) -> list[Look]:
    """What looks into the outputs of each bundle, all measured alike.

    Args:
        bundles: all of texts, or all of spans.
        search: of their kind; of a beam search the tree is shown.
        methods: of contributions; None for the usual ones. That by which source use is measured is
            shown beside them.
        tokens: tokens of a side that maps of weights show, the first ones.

    Raises:
        UserError: for a method that is not there.
    """
    names = known_methods(USUAL if methods is None else methods)
    writing = [bundle for bundle in bundles if isinstance(bundle, TextBundle)]
    measure = source_measure([bundle.model for bundle in writing])
    if measure not in names:
        names.append(measure)  # for the shares of source and output
    return [
        QuestionLook(bundle, search, tokens)
        if isinstance(bundle, SpanBundle)
        else TextLook(bundle, search, names, measure, tokens)
        for bundle in bundles
    ]


def sentence_document(
    looks: Sequence[Look],
    number: int,
    text: str,
    references: Sequence[str],
    context: str | None = None,
) -> SentenceDocument:
    """The document of a sentence.

    Args:
        looks: into each bundle.
        number: its place among those of the page.
        text: a source, or a question with its `context`.
        references: right outputs, perhaps none.
        context: of a question that is answered by a span.
    """
    made = [
        look.document(text, context or "", references)
        if isinstance(look, QuestionLook)
        else look.document(text, references)
        for look in looks
    ]
    return {
        "number": number,
        "text": text,
        "context": context,
        "references": list(references),
        "looks": made,
    }


def summary_document(sentence: SentenceDocument) -> SummaryDocument:
    """The row of a sentence in the page's list."""
    read = f"{sentence['text']} {sentence['context'] or ''}"
    return {
        "text": sentence["text"],
        "length": len(read.split()),
        "scores": [look["score"] for look in sentence["looks"]],
        "source_use": [look["source_use"] for look in sentence["looks"]],
    }
