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
    (section 3 of the paper), carried over to the decoder and across as rollout is. T * (S + T)
    flow problems a sentence, solved side by side: under a second for 15 tokens a side, half a
    minute for 40.
    """

    name: ClassVar[str] = "flow"
    cites: ClassVar[str] = "Abnar and Zuidema 2020, arXiv 2005.00928"
    slow: ClassVar[bool] = True

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
    """One sentence's, its padding left out, in float64 on the CPU."""

    def exact(part: Tensor) -> Tensor:
        return part.to("cpu", torch.float64)

    encoder = [exact(matrix[row][places][:, places]) for matrix in mixing.encoder]
    decoder = [
        DecoderMixing(
            exact(own[row, :length, :length]),
            exact(cross[row, :length, places]),
            exact(kept[row, :length]),
        )
        for own, cross, kept in mixing.decoder
    ]
    return Mixing(encoder, decoder)


def flows_of(mixing: Mixing) -> Tensor:
    """Maximum flows (T, S+T) from each target token to source tokens and target tokens read.

    Args:
        mixing: of one sentence: matrices (S, S), (T, T) and (T, S), and (T,).
    """
    length, tokens = mixing.decoder[0].cross.shape
    memory = 2 * len(mixing.decoder) + 1  # groups of nodes above the encoder's outputs
    decoder, across = [], []
    for n, (own, cross, kept) in enumerate(reversed(mixing.decoder)):
        decoder += [Link(2 * n, 2 * n + 1, kept.diag()), Link(2 * n + 1, 2 * n + 2, own)]
        across.append(Link(2 * n, memory, cross))
    encoder = [
        Link(memory + n, memory + n + 1, matrix)
        for n, matrix in enumerate(reversed(mixing.encoder))
    ]
    sizes = [length] * memory + [tokens] * (len(encoder) + 1)
    flows = mixing.decoder[0].cross.new_zeros(length, tokens + length)
    start, end = torch.cartesian_prod(torch.arange(length), torch.arange(tokens)).unbind(1)
    links = [*decoder, *across, *encoder]
    flows[start, end] = maximum_flow(links, sizes, start, len(sizes) - 1, end)
    start, end = torch.tril_indices(length, length)
    flows[start, tokens + end] = maximum_flow(decoder, sizes, start, memory - 1, end)
    return flows
