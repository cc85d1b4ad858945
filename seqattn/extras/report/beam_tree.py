"""The tree of a beam search: every candidate that it weighed, and what became of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from seqattn.extras.report.document_types import BeamNode
from seqattn.generation.base import Hypothesis
from seqattn.generation.beam import BeamSearch, BeamSentence
from seqattn.tokens import EOS


class Candidate(NamedTuple):
    """A node of the tree: its step from 1, its parent's number (-1: the begin), its token, its
    log-probability in nats, and whether it was kept, finished or pruned."""

    step: int
    parent: int
    token: int
    score: float
    fate: str


class _Recorded(BeamSentence):
    """A sentence's search that notes what it weighs."""

    def __init__(self, search: BeamSearch, most: int) -> None:
        super().__init__(search, most)
        self.nodes: list[Candidate] = []
        self._live = [-1] * search.beam_size

    def advance(
        self, length: int, extras: list[float], *found: list[Any]
    ) -> list[tuple[float, int, int]]:
        if self.done:
            return super().advance(length, extras, *found)
        candidates = list(zip(*found, strict=True))
        live = super().advance(length, extras, *found)
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
    """A beam search that keeps the tree of each sentence; it finds what `BeamSearch` finds."""

    trees: list[_Recorded] = field(default_factory=list, kw_only=True, repr=False)

    @classmethod
    def of(cls, search: BeamSearch) -> "TracedBeamSearch":
        """The same search, which gives all that it finished, one sentence a batch."""
        own = {one.name: getattr(search, one.name) for one in fields(BeamSearch)}
        return cls(**{**own, "n_best": search.beam_size, "batch_size": 1, "workers": 1})

    def begin(self, most: int) -> BeamSentence:
        made = _Recorded(self, most)
        self.trees.append(made)
        return made


def tree_document(
    nodes: Sequence[Candidate], best: Hypothesis, pieces: Callable[[Sequence[int]], list[str]]
) -> list[BeamNode]:
    """The nodes of a tree, those on the way to the output marked.

    Args:
        nodes: parents before their children.
        best: the output.
        pieces: gives the pieces of ids.
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
    """Numbers of the nodes from the last token of a hypothesis back to its first."""
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
