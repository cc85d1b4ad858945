"""How a model's attentions are while it trains: broad, resting on the end mark, dead."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from seqattn.analysis.head_statistics import Call, HeadStatistics
from seqattn.analysis.head_sums import Calls, watching
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanInput, SpanModel
from seqattn.tokens import EOS, PAD


class Sides(NamedTuple):
    """What asks in a call of an attention, and what is asked: ids, padded with 0."""

    queries: Tensor
    """(B, T)."""
    keys: Tensor
    """(B, S)."""


class Reading(NamedTuple):
    """A fixed batch, and how a model reads it.

    Args:
        call: reads it once.
        sides: of each attention, by a pattern of its name: one `Sides` for each call of it, in
            order, where a call may come in several steps of some queries each.
    """

    call: Callable[[], object]
    sides: Mapping[str, Sequence[Sides]]


def reading_of_texts(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Reading:
    """An encoder-decoder reads sources (B, S) and whole targets (B, T), begin first."""

    def call() -> object:
        return model.features(target, model.start(model.encode(source), cached=False))

    sides = {
        "encoder.*": [Sides(source, source)],
        "*cross_attention": [Sides(target, source)],
        "decoder.*": [Sides(target, target)],
    }
    return Reading(call, sides)


def reading_of_questions(model: SpanModel, batch: SpanInput) -> Reading:
    """A span model reads questions and their contexts."""
    question, context = batch.question, batch.context
    sides = {
        "encoder.*": [Sides(question, question), Sides(context, context)],
        "reader.*": [Sides(context, context)],
        "question_attention": [Sides(context, question)],
    }
    return Reading(partial(model, batch), sides)


def statistics_of(model: nn.Module, reading: Reading) -> dict[str, HeadStatistics]:
    """Statistics of each attention that has weights and a pattern, by its name.

    Weights are the true ones whichever way the kernel makes its output, and so is what each query
    may look at: a window, for one.
    """
    with inference(model), watching(model) as seen:
        reading.call()
    found = {}
    for name, calls in seen.items():
        sides = next((s for key, s in reading.sides.items() if fnmatchcase(name, key)), None)
        if sides is not None:
            found[name] = _statistics(calls, sides)
    return found


def _statistics(calls: Calls, sides: Sequence[Sides]) -> HeadStatistics:
    found = []
    steps = ((side, place) for side in sides for place in range(side.queries.shape[1]))
    for weights, visible in calls.of_heads():
        *_, (side, last) = islice(steps, weights.shape[2])
        queries = side.queries[:, last + 1 - weights.shape[2] : last + 1]
        found.append(Call(weights, visible, queries != PAD, side.keys == EOS))
    return HeadStatistics.of(found)


def figures_of(found: Mapping[str, HeadStatistics]) -> dict[str, float]:
    """Numbers of each attention, such as `attention/NAME/entropy`; none of what it has not."""
    numbers: dict[str, Tensor] = {}
    for name, heads in found.items():
        known = ~heads.entropy.isnan()
        shares = {"dead_heads": heads.dead, "uniform_heads": heads.uniform}
        of_heads = {"entropy": heads.entropy, "end_mass": heads.end} | {
            key: which[known].float() for key, which in shares.items()
        }
        numbers |= {f"attention/{name}/{key}": one.nanmean() for key, one in of_heads.items()}
    told = dict(zip(numbers, torch.stack([*numbers.values()]).tolist() if numbers else []))
    return {name: number for name, number in told.items() if number == number}


class AttentionHealth(Callback):
    """Logs what the heads of every attention do on a fixed batch, with each validation's scores.

    Args:
        reading: gives the batch for the model as it stands.
    """

    def __init__(self, reading: Callable[[torch.device], Reading]) -> None:
        self.reading = reading

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called by Lightning."""
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        found = statistics_of(pl_module.model, self.reading(pl_module.device))  # type: ignore[arg-type]
        pl_module.log_dict(figures_of(found), rank_zero_only=True)
