"""Word alignment of given pairs by one forced pass."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import capture, has_weights, makers, place_of
from seqattn.analysis.word_alignment import AlignmentReading
from seqattn.errors import UserError
from seqattn.generation.base import inference
from seqattn.generation.forced_decoding import Sides, batches, padded
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS

_AT_ONCE = 4096
"""Maximum padded tokens per side of a batch."""


def cross_attentions(model: Seq2SeqModel) -> list[str]:
    """Return the names of cross-attentions with weights, by layer.

    Raises:
        UserError: if there are none.
    """
    names = [name for name, part in makers(model) if has_weights(part)]
    cross = [name for name in names if place_of(name)[0] == "cross"]
    if not cross:
        raise UserError(
            "words cannot be aligned: the cross-attention of this model computes no weights"
        )
    return cross


def aligning_pairs(
    model: Seq2SeqModel, pairs: Sequence[Sides], readings: Sequence[AlignmentReading]
) -> list[list[Tensor]]:
    """Return for each pair the cross-attention (T, S) of each reading.

    Args:
        model: in training or eval mode, restored afterwards.
        pairs: ids of N sources and targets, each with its end, none longer than the model allows.
        readings: how to align words.
    """
    names = cross_attentions(model)
    layers = [reading.layer_of(len(names)) for reading in readings]
    parts = nn.ModuleDict({str(layer): model.get_submodule(names[layer]) for layer in layers})
    results: dict[int, list[Tensor]] = {}
    for rows in batches(pairs, _AT_ONCE):
        sources = padded([pairs[row][0] for row in rows])
        read = padded([[BOS, *pairs[row][1][:-1]] for row in rows])
        with inference(model) as device, capture(parts) as maps:
            state = model.start(model.encode(sources.to(device)), cached=False)
            model.features(read.to(device), state)
        weights = {name: torch.cat(calls, dim=2).cpu() for name, calls in maps.items()}
        for number, row in enumerate(rows):
            source, target = map(len, pairs[row])
            results[row] = [
                reading.rows(weights[str(layer)][number, :, :target, :source])
                for reading, layer in zip(readings, layers, strict=True)
            ]
    return [results[row] for row in range(len(pairs))]
