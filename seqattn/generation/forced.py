"""Forced decoding: how likely given targets are."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqattn.generation.base import inference
from seqattn.generation.ensemble import Ensemble
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, PAD

_AT_ONCE = 4096
"""Padded target tokens, each with probabilities over the whole vocabulary."""


def forced_log_probabilities(
    model: Seq2SeqModel | Ensemble, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[float]:
    """log p(target | source) in nats of N pairs, the end included.

    Args:
        model: of both sides' vocabularies.
        pairs: ids of source and target, each with its end.

    Raises:
        UserError: where a source or a target is longer than the model's positions.
    """
    found = [0.0] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda n: tuple(map(len, pairs[n][::-1])))
    with inference(model) as device:
        while order:
            longest, rows = len(pairs[order[-1]][1]), list[int]()
            while order and longest * (len(rows) + 1) <= max(_AT_ONCE, longest):
                rows.append(order.pop())
            source, target = (
                pad_sequence(
                    [torch.tensor(pairs[row][side]) for row in rows], True, PAD
                ).to(device)
                for side in (0, 1)
            )  # fmt: skip
            for row, total in zip(rows, _totals(model, source, target), strict=True):
                found[row] = total
    return found


def _totals(model: Seq2SeqModel | Ensemble, source: Tensor, target: Tensor) -> list[float]:
    """Of each target (B, T), padded on the right, without its begin."""
    said = torch.cat((torch.full_like(target[:, :1], BOS), target[:, :-1]), dim=1)
    memory: object = model.encode(source)
    state: object = model.start(memory, cached=False)  # type: ignore[arg-type]
    likely = model.log_probabilities(said, state).log_probabilities  # type: ignore[arg-type]
    each = likely.gather(2, target[..., None])[..., 0]  # (B, T, V) -> (B, T)
    totals: list[float] = each.masked_fill(target == PAD, 0.0).sum(dim=1).tolist()
    return totals
