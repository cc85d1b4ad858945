"""Forced decoding: probabilities of given targets."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqattn.generation.base import Progress, inference
from seqattn.generation.ensemble import Ensemble
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, PAD

_AT_ONCE = 4096
"""Maximum padded tokens per side of a batch; each target token needs a row of logits."""
Sides = tuple[Sequence[int], Sequence[int]]
"""Ids of a source and its target, each with its end."""


def forced_log_probabilities(model: Seq2SeqModel | Ensemble, pairs: Sequence[Sides]) -> list[float]:
    """Return log p(target | source) in nats for N pairs, the end included.

    Raises:
        UserError: a source or target is longer than the model's maximum.
    """
    return [float(each.sum()) for each in target_log_probabilities(model, pairs)]


def target_log_probabilities(
    model: Seq2SeqModel | Ensemble, pairs: Sequence[Sides], progress: Progress | None = None
) -> list[Tensor]:
    """Return for each pair the log-probability of each target token (T,), in nats, float64.

    Args:
        model: a model with the vocabularies of both sides.
        pairs: N pairs.
        progress: callback `(done, total)` in pairs.
    """
    results: list[Tensor] = [torch.empty(0)] * len(pairs)
    done = 0
    with inference(model) as device:
        for batch in batches(pairs, _AT_ONCE):
            sides = zip(*(pairs[row] for row in batch), strict=True)
            source, target = (padded(side).to(device) for side in sides)
            likely = _likely(model, source, target).cpu().double()
            for row, each in zip(batch, likely, strict=True):
                results[row] = each[: len(pairs[row][1])]
            done += len(batch)
            if progress is not None:
                progress(done, len(pairs))
    return results


def batches(pairs: Sequence[Sides], tokens: int) -> Iterator[list[int]]:
    """Yield batches of rows of similar lengths, longest first, up to `tokens` padded per side."""
    lengths = [tuple(map(len, pair)) for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda row: (max(lengths[row]), lengths[row]))[::-1]
    while order:
        count = max(1, tokens // max(1, *lengths[order[0]]))
        yield order[:count]
        order = order[count:]


def padded(rows: Sequence[Sequence[int]], filling: int = PAD) -> Tensor:
    """Return rows of different lengths as one tensor, padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], True, filling)


def _likely(model: Seq2SeqModel | Ensemble, source: Tensor, target: Tensor) -> Tensor:
    """Return log-probabilities of targets (B, T), padded on the right, without their begin."""
    prefix = torch.cat((torch.full_like(target[:, :1], BOS), target[:, :-1]), dim=1)
    memory: object = model.encode(source)
    state: object = model.start(memory, cached=False)  # type: ignore[arg-type]
    likely = model.log_probabilities(prefix, state).log_probabilities  # type: ignore[arg-type]
    return likely.gather(2, target[..., None])[..., 0]  # (B, T, V) -> (B, T)
