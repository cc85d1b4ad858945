"""Document of a sentence with the outputs of several bundles."""

from collections.abc import Mapping, Sequence
from typing import Any

from seqattn.extras.explain.explanations import known_methods
from seqattn.extras.report.contributions import USUAL
from seqattn.extras.report.document_types import SentenceDocument, SummaryDocument
from seqattn.extras.report.question_document import QuestionLook
from seqattn.extras.report.text_document import TextLook
from seqattn.metrics.scripts import split_words

Look = TextLook | QuestionLook
LOOKS: Mapping[str, Any] = {"text": TextLook, "spans": QuestionLook}
"""Classes of looks, by the output type of bundles."""


def looks_into(
    bundles: Sequence[Any],
    search: Any,
    methods: Sequence[str] | None = None,
    tokens: int = 100,
) -> Sequence[Look]:
    """Return a look for each bundle, with the same measures for all.

    Args:
        bundles: bundles of one output type.
        search: search of that type; for a beam search the tree is shown.
        methods: explanation methods; None for the default ones. The one that measures source use
            is added.
        tokens: attention maps show at most the first N tokens per side.

    Raises:
        UserError: if a method is unknown.
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
    """Return the document of a sentence.

    Args:
        looks: a look for each bundle.
        number: index of the sentence on the page.
        text: source, or question with its `context`.
        references: correct outputs, possibly none.
        context: context of a question that is answered by a span.
    """
    return {
        "number": number,
        "text": text,
        "context": context,
        "references": list(references),
        "looks": [look.document(text, references, context or "") for look in looks],
    }


def _expected(look: Any) -> float | None:
    """Return the expected score of a look whose output was judged."""
    return look["quality"]["expected"] if look.get("quality") else None


def summary_document(sentence: SentenceDocument) -> SummaryDocument:
    """Return the row of a sentence in the page's list."""
    read = f"{sentence['text']} {sentence['context'] or ''}"
    return {
        "text": sentence["text"],
        "length": len(split_words(read)),
        "scores": [look["score"] for look in sentence["looks"]],
        "source_use": [look["source_use"] for look in sentence["looks"]],
        "expected": [*map(_expected, sentence["looks"])],
    }
