"""Attention flow: the most that can flow from a target token down to each token that was read."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from seqattn.analysis.explanations.base import Explanation, Method
from seqattn.analysis.explanations.flow_network import Link, maximum_flow
from seqattn.analysis.explanations.parts import shares_of
from seqattn.analysis.explanations.passes import run_transformer, shared_out, why_no_layers
from seqattn.analysis.explanations.rollout import DecoderMixing, Mixing, attention_mixing
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Transformer
from seqattn.tokens import PAD


class Flow(Method):
    """The maximum flow through the layers, whose capacities are the matrices of rollout.

    From each target token at the top to each token read at the bottom, as shares of their sum
    (section 4 of the paper), carried over to the decoder and across as rollout is. T * (S + T)
    flow problems a sentence, solved side by side.
    """

    name: ClassVar[str] = "flow"
    cites: ClassVar[str] = "Abnar and Zuidema 2020, arXiv 2005.00928"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        return why_no_layers(model)

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        assert isinstance(model, Transformer)
        mixing = attention_mixing(run_transformer(model, source, target))
        rows = mixing.decoder[0].cross.new_zeros(*target.shape, source.shape[1] + target.shape[1])
        for row, ids, out in zip(range(len(source)), source, target):
            length = int((out != PAD).sum())
            places = (ids != PAD).nonzero()[:, 0]
            flows = flows_of(_of_sentence(mixing, row, places, length)).to(rows)
            rows[row, :length, places] = flows[:, : len(places)]
            rows[row, :length, source.shape[1] :][:, :length] = flows[:, len(places) :]
        return shared_out(target, *shares_of(rows).split((source.shape[1], target.shape[1]), dim=2))


def _of_sentence(mixing: Mixing, row: int, places: Tensor, length: int) -> Mixing:
    """One sentence's, its padding left out, in float64."""
    encoder = [matrix[row][places][:, places].double() for matrix in mixing.encoder]
    decoder = [
        DecoderMixing(
            own[row, :length, :length].double(),
            cross[row, :length, places].double(),
            kept[row, :length].double(),
        )
        for own, cross, kept in mixing.decoder
    ]
    return Mixing(encoder, decoder)


def flows_of(mixing: Mixing) -> Tensor:
    """Maximum flows (T, S+T) from each target token to source tokens and target tokens read.

    Args:
        mixing: of one sentence: matrices (S, S), (T, T) and (T, S), and (T,).
    """
    sizes, decoder, across = [len(mixing.decoder[0].own)], [], []
    for own, cross, kept in reversed(mixing.decoder):
        top = len(sizes) - 1
        decoder += [Link(top, top + 1, kept.diag()), Link(top + 1, top + 2, own)]
        across.append((top, cross))
        sizes += [len(own)] * 2
    bottom, memory = len(sizes) - 1, len(sizes)
    sizes.append(mixing.decoder[0].cross.shape[1])
    links = sorted(
        [*decoder, *(Link(top, memory, cross) for top, cross in across)], key=lambda x: x.above
    )
    for matrix in reversed(mixing.encoder):
        links.append(Link(len(sizes) - 1, len(sizes), matrix))
        sizes.append(len(matrix))
    targets, sources = torch.arange(sizes[0]), torch.arange(sizes[-1])
    flows = mixing.decoder[0].own.new_zeros(len(targets), len(sources) + len(targets))
    start, end = torch.cartesian_prod(targets, sources).unbind(1)
    flows[start, end] = maximum_flow(links, sizes, start, len(sizes) - 1, end)
    start, end = torch.tril_indices(len(targets), len(targets))
    flows[start, len(sources) + end] = maximum_flow(decoder, sizes, start, bottom, end)
    return flows
