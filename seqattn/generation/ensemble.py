"""Ensembles of models."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqattn.models.base import Memory, Prediction, Seq2SeqModel, State


class Memories(NamedTuple):
    """Encoder outputs of each model for the same sources."""

    ids: Tensor
    """(B, S)."""
    real: Tensor
    """(B, S) bool, True on tokens."""
    each: list[Memory]


class States(list[State]):
    """Decoder state of each model."""

    def reorder(self, index: Tensor) -> None:
        """Reorder the beams of all models; see `State.reorder`."""
        for state in self:
            state.reorder(index)

    def keep(self, sentences: Tensor) -> None:
        """Select sentences in all models; see `State.keep`."""
        for state in self:
            state.keep(sentences)


class Ensemble(nn.Module):
    """Average of the probabilities of several models at every step (Sutskever et al. 2014,
    arXiv 1409.3215).

    Args:
        members: models with the same vocabularies, of any families, on one device.
    """

    def __init__(self, members: Sequence[Seq2SeqModel]) -> None:
        super().__init__()
        self.members: Any = nn.ModuleList(members)
        self.has_weights = all(member.has_weights for member in members)
        self.max_source_length = _least([member.max_source_length for member in members])
        self.max_target_length = _least([member.max_target_length for member in members])

    def encode(self, ids: Tensor) -> Memories:
        """Encode sources (B, S), padded with 0 on either side."""
        each = [member.encode(ids) for member in self.members]
        return Memories(ids, each[0].real, each)

    def start(self, memory: Memories, beams: int = 1, cached: bool = True) -> States:
        """Return the states before the first target token. Args: as in `Seq2SeqModel.start`."""
        pairs = zip(self.members, memory.each, strict=True)
        return States(member.start(own, beams, cached) for member, own in pairs)

    def log_probabilities(
        self, ids: Tensor, state: States, need_weights: bool = False
    ) -> Prediction:
        """Return the mean distribution and weights; see `Seq2SeqModel.log_probabilities`."""
        pairs = zip(self.members, state, strict=True)
        predictions = [member.log_probabilities(ids, own, need_weights) for member, own in pairs]
        mean = torch.stack([one.log_probabilities for one in predictions]).logsumexp(dim=0)
        mean -= math.log(len(predictions))
        weights = [one.weights for one in predictions if one.weights is not None]
        return Prediction(mean, torch.stack(weights).mean(dim=0) if weights else None)


def _least(lengths: Sequence[int | None]) -> int | None:
    return min((length for length in lengths if length is not None), default=None)
