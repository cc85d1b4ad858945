"""Attribution of outputs to the tokens that were read, by published methods."""

import difflib
from collections.abc import Mapping, Sequence

from torch import Tensor

from seqattn.errors import UserError
from seqattn.extras.explain.explanations.alti import ALTI
from seqattn.extras.explain.explanations.attention_gradient import AttentionXGradient
from seqattn.extras.explain.explanations.base import Contrasting, Explanation, Method
from seqattn.extras.explain.explanations.cross_attention import CrossAttention, ValueNorm
from seqattn.extras.explain.explanations.flow import Flow
from seqattn.extras.explain.explanations.gradients import InputXGradient
from seqattn.extras.explain.explanations.integrated_gradients import IntegratedGradients
from seqattn.extras.explain.explanations.occlusion import Occlusion
from seqattn.extras.explain.explanations.relevance import Relevance
from seqattn.extras.explain.explanations.rollout import Rollout
from seqattn.extras.explain.explanations.value_zeroing import ValueZeroing
from seqattn.models.base import Seq2SeqModel

__all__ = ["METHODS", "Contrasting", "Explanation", "Method", "explain", "known_methods"]

_ALL: tuple[Method, ...] = (
    CrossAttention(), ValueNorm(), Rollout(), Flow(), Relevance(), ALTI(),
    AttentionXGradient(), InputXGradient(), IntegratedGradients(), Occlusion(), ValueZeroing(),
)  # fmt: skip
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}
"""Every method by its name."""


def known_methods(names: Sequence[str]) -> list[str]:
    """Return names of `METHODS` unchanged; raise UserError if one is unknown."""
    for name in names:
        if name not in METHODS:
            close = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.7)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(METHODS)}"
            raise UserError(f"unknown method {name}; {hint}")
    return list(names)


def explain(
    model: Seq2SeqModel,
    source: Tensor,
    target: Tensor,
    method: str,
    instead: Tensor | None = None,
) -> Explanation:
    """Return contributions of source tokens and of the target prefix to each target token.

    Args:
        model: in eval mode.
        source: (B, S) ids, end mark included, padded with 0 on either side.
        target: (B, T) ids to predict, end mark included, padded with 0 on the right.
        method: name from `METHODS`.
        instead: (B, T) tokens that target's are compared with, see `Contrasting.explain`; None to
            explain target's alone.

    Raises:
        UserError: if the name is unknown or the method cannot explain the model, with the reason.
    """
    known_methods([method])
    reason = METHODS[method].why_not(model)
    if reason is not None:
        raise UserError(f"method={method} is not available: {reason}")
    if instead is None:
        return METHODS[method].explain(model, source, target)
    return check_contrast(method).explain(model, source, target, instead)


def check_contrast(name: str) -> Contrasting:
    """Return a method that can compare two tokens; raise UserError if this one cannot."""
    method = METHODS[name]
    if isinstance(method, Contrasting):
        return method
    names = ", ".join(name for name, method in METHODS.items() if isinstance(method, Contrasting))
    raise UserError(
        f"method={name} does not depend on the predicted token, so it cannot say why not another; "
        f"choose from {names}"
    )
