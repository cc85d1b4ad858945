"""What cross-attention looks at: its weights as they are, and times the vectors that they weigh."""

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation, Method
from seqattn.extras.explain.explanations.parts import Parts, shares_of
from seqattn.extras.explain.explanations.passes import (
    Aligned,
    run_cross,
    run_recurrent,
    shared_out,
    why_no_cross,
)
from seqattn.models.base import Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.recurrent_decoder import Readout
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
            aligned = run_recurrent(model, source, target)
            return shared_out(target, self.of_alignment(aligned, model.decoder.readout))
        assert isinstance(model, Transformer)
        layers = [self.of_layer(parts) for parts in run_cross(model, source, target)]
        return shared_out(target, torch.stack(layers).mean(dim=0))

    def of_layer(self, parts: Parts) -> Tensor:
        """Shares (B, T, S) of what a layer looks at."""
        return parts.shares

    def of_alignment(self, aligned: Aligned, readout: Readout) -> Tensor:
        """Shares (B, T, S) of what a recurrent model looks at."""
        return aligned.weights


class ValueNorm(CrossAttention):
    """||a f(x)||: the length of what each source token adds to what cross-attention gives.

    f is the value and output projections, and heads are summed before the length is taken. Lengths
    are given as shares of their sum, the mean over decoder layers. In a recurrent model f is what
    the read-out makes of an annotation.
    """

    name: ClassVar[str] = "value_norm"
    cites: ClassVar[str] = "Kobayashi et al. 2020, arXiv 2004.10102"

    def of_layer(self, parts: Parts) -> Tensor:
        return shares_of(parts.contributions().norm(dim=3))

    def of_alignment(self, aligned: Aligned, readout: Readout) -> Tensor:
        width = aligned.annotations.shape[2]
        matrix = readout.merge.weight
        columns = matrix[:, -width:] if readout.maxout else matrix[:, :width]
        lengths = (aligned.annotations @ columns.T).norm(dim=2)
        return shares_of(aligned.weights * lengths[:, None])
