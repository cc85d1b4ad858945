"""Pairs of source and target ids, and the attention of a model on one."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from seqattn.analysis.capture import Maps, capture
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS


class Pair(NamedTuple):
    """Ids of a source and its target, each with its end token."""

    source: Sequence[int]
    target: Sequence[int]

    @property
    def read(self) -> list[int]:
        """Decoder input: the begin token, and the target without its end."""
        return [BOS, *self.target[:-1]]


def observed(model: Seq2SeqModel, pair: Pair) -> Maps:
    """Return the weights (1, H, T, S) of each attention on a pair, as a single call each."""
    with inference(model) as device, capture(model) as maps:
        model(*(torch.tensor([ids], device=device) for ids in (pair.source, pair.read)))
    for calls in maps.values():  # an edited recurrent decoder runs step by step
        calls[:] = [torch.cat(calls, dim=2)] if calls else []
    return maps
