"""Explanations by cross-attention: its weights, and the norms of weighted value vectors."""

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation, Method
from seqattn.extras.explain.explanations.decomposition import Decomposition, shares_of
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
    """Weights from target to source, averaged over heads and decoder layers.

    If an alignment's weights sum to less than 1, `rest` is the difference. `prefix` is 0.
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

    def of_layer(self, parts: Decomposition) -> Tensor:
        """Return shares (B, T, S) of source tokens in a layer's attention."""
        return parts.shares

    def of_alignment(self, aligned: Aligned, readout: Readout) -> Tensor:
        """Return shares (B, T, S) of source tokens in a recurrent model's alignment."""
        return aligned.weights


class ValueNorm(CrossAttention):
    """||a f(x)||: norm of each source token's term in the output of cross-attention.

    f is the value and output projections, and heads are summed before taking the norm. Norms are
    normalized to sum to 1 and averaged over decoder layers. In a recurrent model f is the
    read-out's projection of an annotation.
    """

    name: ClassVar[str] = "value_norm"
    cites: ClassVar[str] = "Kobayashi et al. 2020, arXiv 2004.10102"

    def of_layer(self, parts: Decomposition) -> Tensor:
        return shares_of(parts.contributions().norm(dim=3))

    def of_alignment(self, aligned: Aligned, readout: Readout) -> Tensor:
        width = aligned.annotations.shape[2]
        matrix = readout.merge.weight
        columns = matrix[:, -width:] if readout.maxout else matrix[:, :width]
        lengths = (aligned.annotations @ columns.T).norm(dim=2)
        return shares_of(aligned.weights * lengths[:, None])
