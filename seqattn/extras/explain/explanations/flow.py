"""Attention flow: the most that can flow from a target token down to each token that was read."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqattn.extras.explain.explanations.base import Explanation
from seqattn.extras.explain.explanations.parts import shares_of
from seqattn.extras.explain.explanations.passes import run_transformer, shared_out
from seqattn.extras.explain.explanations.rollout import DecoderMixing, Mixing, Rollout
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Transformer
from seqattn.tokens import PAD

_LEAST = 1e-12
"""Below this a capacity, or what a node holds, is rounding."""
_NUMBERS = 1 << 19
"""Numbers of flows that are worked on at once, which a processor's cache holds."""


class Flow(Rollout):
    """The maximum flow through the layers, whose capacities are the matrices of rollout.

    From each target token at the top to each token read at the bottom, as shares of their sum
    (section 3 of the paper), carried over to the decoder and across as rollout is. T * (S + T)
    flow problems a sentence, solved side by side: under a second for 15 tokens a side, half a
    minute for 40.
    """

    name: ClassVar[str] = "flow"
    slow: ClassVar[bool] = True

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        assert isinstance(model, Transformer)
        mixing = self.mixing(run_transformer(model, source, target))
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


class Link(NamedTuple):
    """What can flow from the nodes of one group to those of a later one."""

    above: int
    below: int
    capacity: Tensor
    """(M, N), none below 0, in float64."""


def maximum_flow(
    links: Sequence[Link], sizes: Sequence[int], sources: Tensor, group: int, sinks: Tensor
) -> Tensor:
    """The most that can flow from a node of group 0 to a node of another, for P pairs of them.

    Push and relabel (Goldberg and Tarjan 1988): what the source can give is pushed along shortest
    ways to the sink through what room is left, until what is left over has no way.

    Args:
        links: quickest where a link stands after those that lead to it; none leads back up.
        sizes: how many nodes each group has.
        sources: (P,) nodes of group 0.
        group: of the sinks.
        sinks: (P,) nodes of that group.

    Returns:
        (P,).
    """
    step = max(1, _NUMBERS // sum(link.capacity.numel() for link in links))
    parts = zip(sources.split(step), sinks.split(step))
    return torch.cat([_Flows(links, sizes, one, group, end).run() for one, end in parts])


class _Flows:
    """Flows of P pairs. Args: as `maximum_flow`."""

    def __init__(
        self,
        links: Sequence[Link],
        sizes: Sequence[int],
        sources: Tensor,
        group: int,
        sinks: Tensor,
    ) -> None:
        self.links, self.group, self.sinks = links, group, sinks
        pairs, like = len(sources), links[0].capacity
        self.flows = [like.new_zeros(pairs, *link.capacity.shape) for link in links]
        self.held = [like.new_zeros(pairs, size) for size in sizes]
        given = torch.stack([link.capacity.sum(dim=1) for link in links if link.above == 0])
        self.held[0][torch.arange(pairs), sources] = given.sum(dim=0)[sources]
        self.far = sum(sizes)
        """A distance longer than any way."""

    def run(self) -> Tensor:
        """The flow into each sink (P,)."""
        total = self.flows[0].new_zeros(len(self.sinks))
        pairs = torch.arange(len(self.sinks))
        while len(pairs):
            away = self._distances()
            moving = torch.zeros(len(pairs), dtype=torch.bool)
            for held, distance in zip(self.held, away):
                moving |= ((held > _LEAST) & (distance > 0) & (distance < self.far)).any(dim=1)
            arrived = self.held[self.group].gather(1, self.sinks[:, None])[:, 0]
            total[pairs] = arrived
            if not moving.all():
                pairs, away = pairs[moving], [part[moving] for part in away]
                self._keep(moving)
            self._push(away)
        return total

    def _keep(self, chosen: Tensor) -> None:
        self.sinks = self.sinks[chosen]
        self.flows = [flow[chosen] for flow in self.flows]
        self.held = [held[chosen] for held in self.held]

    def _distances(self) -> list[Tensor]:
        """How many steps each node is from its sink, by ways with room: (P, N) of each group."""
        away = [torch.full(held.shape, self.far, dtype=torch.int32) for held in self.held]
        away[self.group][torch.arange(len(self.sinks)), self.sinks] = 0
        down = [link.capacity - flow > _LEAST for link, flow in zip(self.links, self.flows)]
        up = [flow > _LEAST for flow in self.flows]
        while True:
            before = [part.clone() for part in away]
            for link, open_ in zip(reversed(self.links), reversed(down)):
                ways = torch.where(open_, away[link.below][:, None], self.far).amin(dim=2) + 1
                away[link.above] = torch.minimum(away[link.above], ways)
            for link, open_ in zip(self.links, up):
                ways = torch.where(open_, away[link.above][..., None], self.far).amin(dim=1) + 1
                away[link.below] = torch.minimum(away[link.below], ways)
            if all(torch.equal(one, other) for one, other in zip(before, away)):
                return away

    def _push(self, away: list[Tensor]) -> None:
        """Moves what nodes hold one step nearer to the sink, group after group, down and up."""
        for link, flow in zip(self.links, self.flows):
            above, below = away[link.above][..., None], away[link.below][:, None]
            room = torch.where(above == below + 1, link.capacity - flow, 0.0)
            moved = _filled(room, self.held[link.above])
            flow += moved
            self.held[link.above] -= moved.sum(dim=2)
            self.held[link.below] += moved.sum(dim=1)
        for link, flow in zip(reversed(self.links), reversed(self.flows)):
            above, below = away[link.above][..., None], away[link.below][:, None]
            room = torch.where(below == above + 1, flow, 0.0).mT
            moved = _filled(room, self.held[link.below])
            flow -= moved.mT
            self.held[link.below] -= moved.sum(dim=2)
            self.held[link.above] += moved.sum(dim=1)


def _filled(room: Tensor, held: Tensor) -> Tensor:
    """What held (P, M) puts into room (P, M, N), the first places first."""
    before = room.cumsum(dim=2) - room
    return torch.minimum((held[..., None] - before).clamp(min=0), room.clamp(min=0))
