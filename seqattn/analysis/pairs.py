"""Sentences with their targets as ids, and where a model looks in one."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from seqattn.analysis.capture import Maps, capture
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS


class Pair(NamedTuple):
    """Ids of a source and of its target, each with its end mark."""

    source: Sequence[int]
    target: Sequence[int]

    @property
    def read(self) -> list[int]:
        """What the decoder reads: the begin mark, and the target without its end."""
        return [BOS, *self.target[:-1]]


def observed(model: Seq2SeqModel, pair: Pair) -> Maps:
    """The weights (1, H, T, S) of each attention as a model reads a pair, one call for each."""
    with inference(model) as device, capture(model) as maps:
        model(*(torch.tensor([ids], device=device) for ids in (pair.source, pair.read)))
    for calls in maps.values():  # an edited recurrent decoder goes step by step
        calls[:] = [torch.cat(calls, dim=2)] if calls else []
    return maps
