"""Attention weights as they are."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.analysis.explanations.base import Explanation, Method
from seqattn.analysis.explanations.passes import (
    run_cross,
    run_recurrent,
    shared_out,
    why_no_cross,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.transformer import Transformer


class CrossAttention(Method):
    """The weights from target to source, the mean over heads and decoder layers.

    Where an alignment's weights sum to less than 1, the difference is left. The target's prefix
    gets nothing.
    """

    name: ClassVar[str] = "attention"
    cites: ClassVar[str] = "Bahdanau et al. 2015, arXiv 1409.0473"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_cross(model)

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        if isinstance(model, Recurrent):
            return shared_out(target, run_recurrent(model, source, target).weights)
        assert isinstance(model, Transformer)
        layers = [parts.shares for parts in run_cross(model, source, target)]
        return shared_out(target, torch.stack(layers).mean(dim=0))
