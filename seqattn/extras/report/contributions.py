"""Contributions of source and prefix to each output token, and source use."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqattn.extras.explain.explanations import METHODS, Explanation, Method, explain
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.extras.explain.lens import lens, why_no_lens
from seqattn.extras.report.arrays import packed
from seqattn.extras.report.document_types import ExplanationDocument, LensDocument
from seqattn.models.base import Seq2SeqModel

USUAL = ("alti", "rollout", "value_norm", "attention", "relevance", "input_x_gradient")
"""Methods shown by default: fast ones, of each family."""
CONTRAST_BY = "occlusion"
"""Method that compares each token with the second likeliest; it supports all models, and is fast
for a sentence."""
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


def runners_up(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Tensor:
    """Return the likeliest token besides each target token, (1, T). Args: as `Method.explain`."""
    with torch.no_grad():
        state = model.start(model.encode(source), cached=False)
        output = model.log_probabilities(decoder_input(target), state).log_probabilities
    return output.scatter(2, target[..., None], -torch.inf).argmax(dim=2)


def contrast_document(
    model: Seq2SeqModel,
    source: Tensor,
    target: Tensor,
    pieces: Callable[[list[int]], list[str]],
    max_tokens: int,
) -> ExplanationDocument:
    """Return the document of why each target token and not the second likeliest.

    Args:
        model, source, target: as `Method.explain`, for one sentence.
        pieces: function from target ids to their pieces.
        max_tokens: number of tokens of both sides beyond which there is none, being slow.
    """
    explanation: Explanation | str = f"computed for up to {max_tokens} tokens of both sides only"
    instead = None
    if source.shape[1] + target.shape[1] <= max_tokens:
        alternatives = runners_up(model, source, target)
        explanation = explain(model, source, target, CONTRAST_BY, alternatives)
        instead = pieces(alternatives[0].tolist())
    document = explanation_document(METHODS[CONTRAST_BY], explanation)
    return {**document, "method": "contrast", "cites": "Yin and Neubig 2022", "instead": instead}


def lens_document(
    model: Seq2SeqModel, source: Tensor, target: Tensor, pieces: Callable[[list[int]], list[str]]
) -> LensDocument:
    """Return the document of the lens. Args: as `contrast_document`."""
    reason = why_no_lens(model)
    if reason is not None:
        return {"probability": None, "rank": [], "likeliest": [], "reason": reason}
    probability, rank, likeliest = (part[0] for part in lens(model, source, target))
    return {
        "probability": packed(probability),
        "rank": rank.tolist(),
        "likeliest": [pieces(row) for row in likeliest.tolist()],
        "reason": "",
    }


def explanation_document(method: Method, explanation: Explanation | str) -> ExplanationDocument:
    """Return the document of a method's explanation, or of the reason why there is none."""
    document: ExplanationDocument = {
        "method": method.name,
        "cites": method.cites,
        "signed": method.signed,
        "source": None,
        "prefix": None,
        "rest": None,
        "instead": None,
        "reason": "",
    }
    if isinstance(explanation, str):
        return {**document, "reason": explanation}
    source, prefix, rest = (packed(part[0]) for part in explanation)
    return {**document, "source": source, "prefix": prefix, "rest": rest}
