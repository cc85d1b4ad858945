"""Sentences with their targets as ids, in batches, and what a model says of the targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqattn.analysis.capture import Maps, capture
from seqattn.analysis.explanations.predictions import decoder_input, log_probabilities
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, PAD

_BATCH_TOKENS = 4096


class Pair(NamedTuple):
    """Ids of a source and of its target, each with its end mark."""

    source: Sequence[int]
    target: Sequence[int]

    @property
    def read(self) -> list[int]:
        """What the decoder reads: the begin mark, and the target without its end."""
        return [BOS, *self.target[:-1]]


def batches(pairs: Sequence[Pair], tokens: int = _BATCH_TOKENS) -> Iterator[list[int]]:
    """Rows of similar lengths, the longest first, so many padded tokens of a side together."""
    lengths = [(len(pair.source), len(pair.target)) for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda row: (max(lengths[row]), lengths[row]))[::-1]
    while order:
        count = max(1, tokens // max(1, *lengths[order[0]]))
        yield order[:count]
        order = order[count:]


def padded(rows: Sequence[Sequence[int]], filling: int = PAD) -> Tensor:
    """Numbers of several lengths as one tensor, padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], True, filling)


def observed(model: Seq2SeqModel, pair: Pair) -> Maps:
    """The weights (1, H, T, S) of each attention as a model reads a pair, one call for each."""
    with inference(model) as device, capture(model) as maps:
        model(*(torch.tensor([ids], device=device) for ids in (pair.source, pair.read)))
    for calls in maps.values():  # an edited recurrent decoder goes step by step
        calls[:] = [torch.cat(calls, dim=2)] if calls else []
    return maps


def target_log_probabilities(
    model: Seq2SeqModel,
    pairs: Sequence[Pair],
    progress: Callable[[int, int], object] | None = None,
) -> list[Tensor]:
    """For each pair (T,) of each target token after those before it, in nats, float64."""
    found: list[Tensor] = [torch.empty(0)] * len(pairs)
    done = 0
    with inference(model) as device:
        for batch in batches(pairs):
            source = padded([pairs[row].source for row in batch]).to(device)
            target = padded([pairs[row].target for row in batch]).to(device)
            said = log_probabilities(model, source, decoder_input(target), target).double().cpu()
            for row, several in zip(batch, said, strict=True):
                found[row] = several[: len(pairs[row].target)]
            done += len(batch)
            if progress is not None:
                progress(done, len(pairs))
    return found
