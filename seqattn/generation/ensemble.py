"""Several models that answer together."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.models.base import Memory, Prediction, Seq2SeqModel, State


class Memories(NamedTuple):
    """What each model makes of the same sources."""

    ids: Tensor
    """(B, S)."""
    real: Tensor
    """(B, S) bool, True where a token stands."""
    each: list[Memory]


class States(list[State]):
    """What each model's decoder carries from one call to the next."""

    def reorder(self, index: Tensor) -> None:
        """As `State.reorder`."""
        for state in self:
            state.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        """As `State.keep`."""
        for state in self:
            state.keep(sentences)


class Ensemble(nn.Module):
    """The mean probability of several models at every step (as Sutskever et al. 2014,
    arXiv 1409.3215).

    Args:
        members: models of the same vocabularies, of any families, on one device.
    """

    def __init__(self, members: Sequence[Seq2SeqModel]) -> None:
        super().__init__()
        self.members: Any = nn.ModuleList(members)
        self.has_weights = all(member.has_weights for member in members)
        self.max_source_length = _least([member.max_source_length for member in members])
        self.max_target_length = _least([member.max_target_length for member in members])

    def encode(self, ids: Tensor) -> Memories:
        """Reads the sources (B, S), padded with 0 on either side."""
        each = [member.encode(ids) for member in self.members]
        return Memories(ids, each[0].real, each)

    def start(self, memory: Memories, beams: int = 1, cached: bool = True) -> States:
        """The states before the first target token. Args: as `Seq2SeqModel.start`."""
        pairs = zip(self.members, memory.each, strict=True)
        return States(member.start(own, beams, cached) for member, own in pairs)

    def log_probabilities(
        self, ids: Tensor, state: States, need_weights: bool = False
    ) -> Prediction:
        """What follows each token, as `Seq2SeqModel.log_probabilities`; weights are the mean."""
        pairs = zip(self.members, state, strict=True)
        found = [member.log_probabilities(ids, own, need_weights) for member, own in pairs]
        mean = torch.stack([one.log_probabilities for one in found]).logsumexp(dim=0)
        mean -= math.log(len(found))
        weights = [one.weights for one in found if one.weights is not None]
        return Prediction(mean, torch.stack(weights).mean(dim=0) if weights else None)


def _least(lengths: Sequence[int | None]) -> int | None:
    return min((length for length in lengths if length is not None), default=None)
