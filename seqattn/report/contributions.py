"""Contributions of source and prefix to each token of an output, and how much the source has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.explanations import METHODS, Explanation, Method, explain
from seqattn.attention.base import Attention, AttentionOutput
from seqattn.errors import UserError
from seqattn.models.base import Seq2SeqModel
from seqattn.report.arrays import packed
from seqattn.report.document_types import ExplanationDocument
from seqattn.tokens import BOS

USUAL = ("alti", "rollout", "value_norm", "attention", "relevance", "input_x_gradient")
"""Methods that a page shows unless told otherwise: quick ones, of each family."""
_SHARING = ("alti", "value_norm", "relevance", "input_x_gradient")
"""Methods that share an output among source and prefix, the best first."""
_BY_ATTENTION = ("alti", "value_norm", "relevance")
"""Those of them that see the prefix by self-attention alone."""
NORMS = "norms of cross-attention"
_ACROSS = "cross_attention"


class Read(NamedTuple):
    """One sentence with an output, as the model reads them.

    `source` (1, S) and `target` (1, T) are ids with their ends; the target is what is predicted.
    """

    source: Tensor
    target: Tensor

    @property
    def shifted(self) -> Tensor:
        """(1, T) the begin, and the target but its last."""
        return torch.nn.functional.pad(self.target, (1, -1), value=BOS)


def chosen_methods(names: Sequence[str] | None) -> list[str]:
    """The methods to show.

    Args:
        names: of `METHODS`; None for those of `USUAL`.

    Raises:
        UserError: for another name.
    """
    if names is None:
        return [name for name in USUAL if name in METHODS]
    for name in names:
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise UserError(f"there is no method {name}; the choices are: {known}")
    return list(names)


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


def explanations_of(
    model: Seq2SeqModel, read: Read, names: Sequence[str]
) -> dict[str, Explanation | str]:
    """What each method finds, or the reason why it cannot be had."""
    found: dict[str, Explanation | str] = {}
    for name in names:
        reason = METHODS[name].why_not(model)
        found[name] = explain(model, *read, method=name) if reason is None else reason
    return found


def source_measure(models: Sequence[nn.Module]) -> str:
    """How source use is measured alike in all of these models; "" where it cannot be."""
    looks_back = all(len(_decoder_attentions(model)) > 1 for model in models)
    for name in _SHARING:
        if name in METHODS and (looks_back or name not in _BY_ATTENTION):
            fits = (
                isinstance(model, Seq2SeqModel) and not METHODS[name].why_not(model)
                for model in models
            )
            if all(fits):
                return name
    return NORMS if looks_back else ""


def source_use(
    model: Seq2SeqModel, read: Read, measure: str, known: Mapping[str, Explanation | str]
) -> float | None:
    """How much of an output comes from the source rather than from the output's own beginning.

    A low one is a sign of hallucination (Ferrando et al. 2022, arXiv 2205.11631, section 5.2).

    Args:
        model: in eval mode.
        read: the sentence.
        measure: as `source_measure` gives it.
        known: explanations that are there already.

    Returns:
        The mean over target tokens of a share from 0 to 1; None without a measure.
    """
    if not measure:
        return None
    if measure == NORMS:
        return _share_of_norms(model, read)
    found = known.get(measure)
    if not isinstance(found, Explanation):
        found = explain(model, *read, method=measure)
    source, prefix = (part[0].abs().sum(dim=1) for part in (found.source, found.prefix))
    return float((source / (source + prefix).clamp(min=1e-12)).mean())


def _decoder_attentions(model: nn.Module) -> dict[str, Attention]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Attention) and name.startswith("decoder.")
    }


@torch.no_grad()
def _share_of_norms(model: Seq2SeqModel, read: Read) -> float:
    """What cross-attention adds in each layer, beside what self-attention adds, by their norms."""
    norms: dict[str, Tensor] = {}
    hooks = []
    for name, module in _decoder_attentions(model).items():

        def note(_: nn.Module, __: object, output: AttentionOutput, name: str = name) -> None:
            norms[name] = output.output[0].norm(dim=1)

        hooks.append(module.register_forward_hook(note))
    try:
        model(read.source, read.shifted)
    finally:
        for hook in hooks:
            hook.remove()
    across = torch.stack([norm for name, norm in norms.items() if name.endswith(_ACROSS)])
    return float((across.sum(dim=0) / torch.stack([*norms.values()]).sum(dim=0)).mean())
