"""Attention health during training: entropy, mass on the end token, dead heads."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import NamedTuple

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from seqattn.extras.pictures.head_statistics import Call, HeadStatistics
from seqattn.extras.pictures.head_sums import Calls, watching
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import EOS, PAD


class Sides(NamedTuple):
    """Ids of the queries and keys in a call of an attention, padded with 0."""

    queries: Tensor
    """(B, T)."""
    keys: Tensor
    """(B, S)."""


class ForwardPass(NamedTuple):
    """A fixed batch and the call that runs a model on it.

    Args:
        call: runs the model once.
        sides: for each pattern of attention names, one `Sides` per call, in order; a call may
            consist of several steps, each with some of the queries.
    """

    call: Callable[[], object]
    sides: Mapping[str, Sequence[Sides]]


def pass_over_texts(model: Seq2SeqModel, source: Tensor, target: Tensor) -> ForwardPass:
    """Return a forward pass over sources (B, S) and complete targets (B, T), begin first."""

    def call() -> object:
        return model.features(target, model.start(model.encode(source), cached=False))

    sides = {
        "encoder.*": [Sides(source, source)],
        "*cross_attention": [Sides(target, source)],
        "decoder.*": [Sides(target, target)],
    }
    return ForwardPass(call, sides)


def statistics_of(model: nn.Module, forward_pass: ForwardPass) -> dict[str, HeadStatistics]:
    """Compute statistics, by name, of each attention that has weights and matches a pattern.

    Weights and visible keys, such as those of a window, are the true ones, however the kernel
    computes its output.
    """
    with inference(model), watching(model) as calls_by_name:
        forward_pass.call()
    statistics = {}
    for name, calls in calls_by_name.items():
        sides = next((s for key, s in forward_pass.sides.items() if fnmatchcase(name, key)), None)
        if sides is not None:
            statistics[name] = _statistics(calls, sides)
    return statistics


def _statistics(calls: Calls, sides: Sequence[Sides]) -> HeadStatistics:
    recorded = []
    steps = ((side, position) for side in sides for position in range(side.queries.shape[1]))
    for weights, visible in calls.of_heads():
        *_, (side, last) = islice(steps, weights.shape[2])
        queries = side.queries[:, last + 1 - weights.shape[2] : last + 1]
        recorded.append(Call(weights, visible, queries != PAD, side.keys == EOS))
    return HeadStatistics.of(recorded)


def health_figures(statistics: Mapping[str, HeadStatistics]) -> dict[str, float]:
    """Return metrics of each attention, such as `attention/NAME/entropy`, omitting NaN."""
    numbers: dict[str, Tensor] = {}
    for name, heads in statistics.items():
        defined = ~heads.entropy.isnan()
        shares = {"dead_heads": heads.dead, "uniform_heads": heads.uniform}
        of_heads = {"entropy": heads.entropy, "end_mass": heads.end} | {
            key: which[defined].float() for key, which in shares.items()
        }
        numbers |= {f"attention/{name}/{key}": values.nanmean() for key, values in of_heads.items()}
    values = dict(zip(numbers, torch.stack([*numbers.values()]).tolist() if numbers else []))
    return {name: number for name, number in values.items() if number == number}


class AttentionHealth(Callback):
    """Callback that logs statistics of all attention heads on a fixed batch at each validation.

    Args:
        forward_pass: function from a device to the batch for the current model.
    """

    def __init__(self, forward_pass: Callable[[torch.device], ForwardPass]) -> None:
        self.forward_pass = forward_pass

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the statistics (called by Lightning)."""
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        statistics = statistics_of(pl_module.model, self.forward_pass(pl_module.device))  # type: ignore[arg-type]
        pl_module.log_dict(health_figures(statistics), rank_zero_only=True)
