"""Contributions of source and prefix to each token of an output, and how much the source has."""

from collections.abc import Sequence

from seqattn.extras.explain.explanations import METHODS, Explanation, Method
from seqattn.extras.report.arrays import packed
from seqattn.extras.report.document_types import ExplanationDocument
from seqattn.models.base import Seq2SeqModel

USUAL = ("alti", "rollout", "value_norm", "attention", "relevance", "input_x_gradient")
"""Methods that a page shows unless told otherwise: quick ones, of each family."""
_SHARING = ("alti", "input_x_gradient")
"""Methods that share an output among source and prefix, the better first; any model can have the
last."""


def source_measure(models: Sequence[Seq2SeqModel]) -> str:
    """The method by which source use is measured alike in all of these models."""
    return next(name for name in _SHARING if not any(map(METHODS[name].why_not, models)))


def source_use(found: Explanation) -> float:
    """How much of an output comes from the source rather than from the output's own beginning.

    A low one is a sign of hallucination (Ferrando et al. 2022, arXiv 2205.11631, section 5.2).

    Args:
        found: by the `source_measure`, of one sentence.

    Returns:
        The mean over target tokens of a share from 0 to 1.
    """
    source, prefix = (part[0].abs().sum(dim=1) for part in (found.source, found.prefix))
    return float((source / (source + prefix).clamp(min=1e-12)).mean())


def explanation_document(method: Method, found: Explanation | str) -> ExplanationDocument:
    """The document of what a method found in one sentence, or of why it cannot be had."""
    made: ExplanationDocument = {
        "method": method.name,
        "cites": method.cites,
        "signed": method.signed,
        "source": None,
        "prefix": None,
        "rest": None,
        "reason": "",
    }
    if isinstance(found, str):
        return {**made, "reason": found}
    source, prefix, rest = (packed(part[0]) for part in found)
    return {**made, "source": source, "prefix": prefix, "rest": rest}
