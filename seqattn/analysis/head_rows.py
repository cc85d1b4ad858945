"""All that is known of an attention's heads, and why some of it is not."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from torch import Tensor, nn

from seqattn.analysis.capture import makers
from seqattn.analysis.head_figures import HeadFigures
from seqattn.attention.experts import MixtureOfAttention

_SLOTS = {"encoder.self": "encoder", "decoder.self": "decoder", "decoder.cross": "cross"}


class HeadRow(NamedTuple):
    """One head: its role, its importance within its attention, and its figures."""

    role: str
    """ "unknown" where it has no weights."""
    importance: float | None
    figures: HeadFigures | None


class AttentionHeads(NamedTuple):
    """The heads of one attention.

    `slot` is encoder, decoder or cross, and `layer` counts from 1; "" and None elsewhere.
    """

    slot: str
    layer: int | None
    heads: list[HeadRow]
    reasons: list[str]
    """Why some of it is not known."""
    experts: bool = False
    """Whether they are those of a mixture, so that no map of weights is of one of them."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it, each head in one dict."""
        rows = [
            {"role": head.role, "importance": head.importance,
             **({} if head.figures is None else head.figures._asdict())}
            for head in self.heads
        ]  # fmt: skip
        return {**self._asdict(), "heads": rows}


def attention_heads(
    model: nn.Module, name: str, figures: list[HeadFigures] | None, importance: Tensor | None
) -> AttentionHeads:
    """Puts together what is known of one attention.

    Args:
        model: that has it.
        name: the attention's.
        figures: of each head; None where it has no weights.
        importance: (H,); None where it has no heads to take out.
    """
    reasons = []
    if figures is None:
        kind = type(dict(makers(model))[name]).__name__
        reasons.append(f"{kind} has no weights over keys, so importance alone is known")
    if importance is None:
        reasons.append("its one alignment is no head that could be taken out: no importance")
    known = importance if figures is None else figures
    count = 0 if known is None else len(known)
    rows = [
        HeadRow(
            figures[head].role if figures else "unknown",
            None if importance is None else float(importance[head]),
            figures[head] if figures else None,
        )
        for head in range(count)
    ]
    experts = isinstance(model.get_submodule(name), MixtureOfAttention)
    found = re.fullmatch(r"(\w+)\.layers\.(\d+)\.(\w+)_attention", name)
    if found is None:
        return AttentionHeads("", None, rows, reasons, experts)
    slot = _SLOTS.get(f"{found[1]}.{found[3]}", found[1])
    return AttentionHeads(slot, int(found[2]) + 1, rows, reasons, experts)
