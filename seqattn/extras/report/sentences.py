"""A sentence as several bundles see it."""

from collections.abc import Mapping, Sequence
from typing import Any

from seqattn.extras.explain.explanations import known_methods
from seqattn.extras.report.contributions import USUAL
from seqattn.extras.report.document_types import SentenceDocument, SummaryDocument
from seqattn.extras.report.question_document import QuestionLook
from seqattn.extras.report.text_document import TextLook

Look = TextLook | QuestionLook
LOOKS: Mapping[str, Any] = {"text": TextLook, "spans": QuestionLook}
"""What looks into the outputs of bundles, by what these give."""


def looks_into(
    bundles: Sequence[Any],
    search: Any,
    methods: Sequence[str] | None = None,
    tokens: int = 100,
) -> Sequence[Look]:
    """What looks into the outputs of each bundle, all measured alike.

    Args:
        bundles: all of one kind.
        search: of their kind; of a beam search the tree is shown.
        methods: of contributions; None for the usual ones. That by which source use is measured is
            shown beside them.
        tokens: tokens of a side that maps of weights show, the first ones.

    Raises:
        UserError: for a method that is not there.
    """
    names = known_methods(USUAL if methods is None else methods)
    looks: Sequence[Look] = LOOKS[bundles[0].output].of(bundles, search, names, tokens)
    return looks


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
    return {
        "number": number,
        "text": text,
        "context": context,
        "references": list(references),
        "looks": [look.document(text, references, context or "") for look in looks],
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
