"""Attention flow: the maximum flow from a target token to each token that was read."""

from importlib.util import find_spec
from typing import ClassVar

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation
from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.passes import run_transformer, shared_out
from seqattn.extras.explain.explanations.rollout import DecoderMixing, Mixing, Rollout
from seqattn.installation import install
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Transformer
from seqattn.tokens import PAD

_UNIT = 1 << 30
"""Capacity of 1 in integer units (int32, which scipy requires); no flow exceeds it."""


class Flow(Rollout):
    """Maximum flow through the layers, with the matrices of rollout as capacities.

    Runs from each target token at the top to each token read at the bottom, normalized to sum to 1
    (section 3 of the paper), extended to decoder and cross-attention like rollout. scipy solves
    T * (S + T) flow problems per sentence: 0.1 seconds for 15 tokens per side, 2 seconds for 40.
    """

    name: ClassVar[str] = "flow"
    slow: ClassVar[bool] = True

    def why_not(self, model: Seq2SeqModel) -> str | None:
        if find_spec("scipy") is None:
            return f"it needs scipy ({install('explain')})"
        return super().why_not(model)

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        assert isinstance(model, Transformer)
        mixing = self.mixing(run_transformer(model, source, target))
        rows = mixing.decoder[0].cross.new_zeros(*target.shape, source.shape[1] + target.shape[1])
        for row, ids, out in zip(range(len(source)), source, target):
            length = int((out != PAD).sum())
            indices = (ids != PAD).nonzero()[:, 0]
            flows = flows_of(_of_sentence(mixing, row, indices, length)).to(rows)
            rows[row, :length, indices] = flows[:, : len(indices)]
            rows[row, :length, source.shape[1] :][:, :length] = flows[:, len(indices) :]
        return shared_out(target, *shares_of(rows).split((source.shape[1], target.shape[1]), dim=2))


def _of_sentence(mixing: Mixing, row: int, indices: Tensor, length: int) -> Mixing:
    """Return the mixing of one sentence without padding, in float64 on the CPU."""

    def to_float64(part: Tensor) -> Tensor:
        return part.to("cpu", torch.float64)

    encoder = [to_float64(matrix[row][indices][:, indices]) for matrix in mixing.encoder]
    decoder = [
        DecoderMixing(
            to_float64(own[row, :length, :length]),
            to_float64(cross[row, :length, indices]),
            to_float64(residual[row, :length]),
        )
        for own, cross, residual in mixing.decoder
    ]
    return Mixing(encoder, decoder)


def flows_of(mixing: Mixing) -> Tensor:
    """Return maximum flows (T, S+T) from each target token to source and target tokens read.

    Args:
        mixing: mixing of one sentence: matrices (S, S), (T, T) and (T, S), and (T,).
    """
    from scipy.sparse import block_array, coo_array  # only this method needs scipy
    from scipy.sparse.csgraph import maximum_flow

    length, tokens = mixing.decoder[0].cross.shape
    # groups of nodes, from the top: before and after each cross-attention, target tokens read,
    # the encoder's layers, source tokens
    read = 2 * len(mixing.decoder)
    last = read + 1 + len(mixing.encoder)
    blocks: list[list[coo_array | None]] = [[None] * (last + 1) for _ in range(last + 1)]

    def link(above: int, below: int, capacity: Tensor) -> None:
        blocks[above][below] = coo_array((capacity * _UNIT).round().int().numpy())

    for group, size in ((0, length), (read, length), (last, tokens)):
        link(group, group, torch.zeros(size, size))  # sets the block's size, even without links
    for n, (own, cross, residual) in enumerate(reversed(mixing.decoder)):
        link(2 * n, 2 * n + 1, residual.diag())
        link(2 * n + 1, 2 * n + 2, own)
        link(2 * n, read + 1, cross)
    for n, matrix in enumerate(reversed(mixing.encoder), read + 1):
        link(n, n + 1, matrix)
    network = block_array(blocks, format="csr")
    source, prefix = network.shape[0] - tokens, read * length  # first node of each group
    flows = mixing.decoder[0].cross.new_zeros(length, tokens + length)
    for t in range(length):
        ends = [*range(source, source + tokens), *range(prefix, prefix + t + 1)]
        values = [maximum_flow(network, t, end).flow_value for end in ends]
        flows[t, : len(ends)] = torch.tensor(values).to(flows) / _UNIT
    return flows
