"""Tree of a beam search: every candidate considered, and its fate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from seqattn.extras.report.document_types import BeamNode
from seqattn.generation.base import Hypothesis
from seqattn.generation.beam import BeamSearch, BeamSentence
from seqattn.tokens import EOS


class Candidate(NamedTuple):
    """Node of the tree: step from 1, index of the parent (-1: the begin mark), token,
    log-probability in nats, and fate: kept, finished or pruned."""

    step: int
    parent: int
    token: int
    score: float
    fate: str


class _Recorded(BeamSentence):
    """Search of one sentence that records its candidates."""

    def __init__(self, search: BeamSearch, most: int) -> None:
        super().__init__(search, most)
        self.nodes: list[Candidate] = []
        self._live = [-1] * search.beam_size

    def advance(
        self, length: int, extras: list[float], *columns: list[Any]
    ) -> list[tuple[float, int, int]]:
        if self.done:
            return super().advance(length, extras, *columns)
        candidates = list(zip(*columns, strict=True))
        live = super().advance(length, extras, *columns)
        places: dict[tuple[int, int], int] = {}
        for rank, (score, parent, token) in enumerate(candidates):
            if score > float("-inf"):
                places[parent, token] = len(self.nodes)
                fate = "finished" if token == EOS and rank < self.search.beam_size else "pruned"
                self.nodes.append(Candidate(length, self._live[parent], token, score, fate))
        going = [places.get((parent, token), -1) for _, parent, token in live]
        for place in going:
            if place >= 0:
                fate = "finished" if length >= self.most else "kept"
                self.nodes[place] = self.nodes[place]._replace(fate=fate)
        self._live = going
        return live


@dataclass(frozen=True)
class TracedBeamSearch(BeamSearch):
    """Beam search that records the tree of each sentence; its outputs are those of `BeamSearch`."""

    trees: list[_Recorded] = field(default_factory=list, kw_only=True, repr=False)

    @classmethod
    def of(cls, search: BeamSearch) -> "TracedBeamSearch":
        """Build the same search, returning all finished hypotheses, one sentence per batch."""
        own = {one.name: getattr(search, one.name) for one in fields(BeamSearch)}
        return cls(**{**own, "n_best": search.beam_size, "batch_size": 1, "workers": 1})

    def begin(self, most: int) -> BeamSentence:
        recorded = _Recorded(self, most)
        self.trees.append(recorded)
        return recorded


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
            ids = [nodes[one].token for one in reversed(way)]
            if tuple(token for token in ids if token != EOS) == best.ids:
                return way
    return []
