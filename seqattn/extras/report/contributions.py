"""Contributions of source and prefix to each output token, and source use."""

from collections.abc import Sequence

from seqattn.extras.explain.explanations import METHODS, Explanation, Method
from seqattn.extras.report.arrays import packed
from seqattn.extras.report.document_types import ExplanationDocument
from seqattn.models.base import Seq2SeqModel

USUAL = ("alti", "rollout", "value_norm", "attention", "relevance", "input_x_gradient")
"""Methods shown by default: fast ones, of each family."""
_SHARING = ("alti", "input_x_gradient")
"""Methods that distribute an output over source and prefix, the better one first; the last one
applies to any model."""


def source_measure(models: Sequence[Seq2SeqModel]) -> str:
    """Return the method that measures source use, the same for all of these models."""
    return next(name for name in _SHARING if not any(map(METHODS[name].why_not, models)))


def source_use(explanation: Explanation) -> float:
    """Return the share of an output that comes from the source rather than from its prefix.

    A low value is a sign of hallucination (Ferrando et al. 2022, arXiv 2205.11631, section 5.2).

    Args:
        explanation: result of the `source_measure` for one sentence.

    Returns:
        Mean over target tokens, from 0 to 1.
    """
    source, prefix = (part[0].abs().sum(dim=1) for part in (explanation.source, explanation.prefix))
    return float((source / (source + prefix).clamp(min=1e-12)).mean())


def explanation_document(method: Method, explanation: Explanation | str) -> ExplanationDocument:
    """Return the document of a method's explanation, or of the reason why there is none."""
    document: ExplanationDocument = {
        "method": method.name,
        "cites": method.cites,
        "signed": method.signed,
        "source": None,
        "prefix": None,
        "rest": None,
        "reason": "",
    }
    if isinstance(explanation, str):
        return {**document, "reason": explanation}
    source, prefix, rest = (packed(part[0]) for part in explanation)
    return {**document, "source": source, "prefix": prefix, "rest": rest}
