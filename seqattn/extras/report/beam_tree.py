"""Tree of a beam search: every candidate considered, and its fate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from torch import Tensor

from seqattn.extras.report.document_types import BeamNode
from seqattn.generation.base import Hypothesis
from seqattn.generation.beam import BeamSearch, Candidates
from seqattn.tokens import EOS


class Candidate(NamedTuple):
    """Node of the tree: step from 1, index of the parent (-1: the begin mark), token,
    log-probability in nats, and fate: kept, finished or pruned."""

    step: int
    parent: int
    token: int
    score: float
    fate: str


@dataclass(frozen=True)
class TracedBeamSearch(BeamSearch):
    """Beam search that records the tree of one sentence; its outputs are those of `BeamSearch`.

    Args:
        nodes: nodes of the tree so far.
        live: node of each live beam.
    """

    nodes: list[Candidate] = field(default_factory=list, kw_only=True, repr=False)
    live: list[int] = field(default_factory=list, kw_only=True, repr=False)

    @classmethod
    def of(cls, search: BeamSearch) -> "TracedBeamSearch":
        """Build the same search, returning all beams, one sentence per batch."""
        settings = {setting.name: getattr(search, setting.name) for setting in fields(BeamSearch)}
        return cls(**{**settings, "n_best": search.beam_size, "batch_size": 1, "workers": 1})

    def observe(self, length: int, candidates: Candidates, live: Candidates, last: Tensor) -> None:
        parents = self.live or [-1] * self.beam_size
        node_by_key: dict[tuple[int, int], int] = {}
        for rank, (score, parent, token) in enumerate(zip(*(x[0].tolist() for x in candidates))):
            if score > float("-inf"):
                node_by_key[parent, token] = len(self.nodes)
                fate = "finished" if token == EOS and rank < self.beam_size else "pruned"
                self.nodes.append(Candidate(length, parents[parent], token, score, fate))
        self.live[:] = [
            node_by_key.get((parent, token), -1) if score > float("-inf") else -1
            for score, parent, token in zip(*(x[0].tolist() for x in live))
        ]
        for node in self.live:
            if node >= 0:
                fate = "finished" if bool(last[0]) else "kept"
                self.nodes[node] = self.nodes[node]._replace(fate=fate)


def tree_document(
    nodes: Sequence[Candidate], best: Hypothesis, pieces: Callable[[Sequence[int]], list[str]]
) -> list[BeamNode]:
    """Return the nodes of a tree, with those of the output marked.

    Args:
        nodes: parents before their children.
        best: ids of the output.
        pieces: function from ids to pieces.
    """
    on_the_way = set(_way_to(nodes, best))
    tokens = pieces([node.token for node in nodes])
    return [
        {
            "step": node.step,
            "parent": node.parent,
            "token": token,
            "score": round(node.score, 4),
            "fate": node.fate,
            "best": number in on_the_way,
        }
        for number, (node, token) in enumerate(zip(nodes, tokens, strict=True))
    ]


def _way_to(nodes: Sequence[Candidate], best: Hypothesis) -> list[int]:
    """Return indices of the nodes from the last token of a hypothesis back to its first."""
    for number, node in enumerate(nodes):
        if node.fate == "finished" and node.score == best.log_probability:
            way, at = [], number
            while at >= 0:
                way.append(at)
                at = nodes[at].parent
            ids = [nodes[index].token for index in reversed(way)]
            if tuple(token for token in ids if token != EOS) == best.ids:
                return way
    return []
