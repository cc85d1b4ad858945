"""Training speed of recurrent models: ours, the textbook's loop and Joey NMT's, step for step.

The contestants take turns on the same batches in one process, which keeps freed memory, with the
same loss, clipping and dropout probability. Ratios are taken within a round; their median is given
with the least and the largest.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from seqattn.benchmarks.joey import SCORES, JoeyRecurrent, installed
from seqattn.benchmarks.measure import Sample, Spread, rates, ratios
from seqattn.benchmarks.own import OwnStep
from seqattn.benchmarks.plain import PlainLoop
from seqattn.benchmarks.shape import RecurrentShape, recurrent_model
from seqattn.benchmarks.textbook import TextbookRecurrent
from seqattn.benchmarks.training import Contestant
from seqattn.data.batch import Batch


@dataclass(frozen=True)
class RecurrentPlan:
    """What to measure.

    Args:
        shapes: of the models, each a contest of its own.
        batches: steps * (rounds + 1) of them; the first `steps` warm up and are not counted.
        steps: optimizer steps of a contestant's turn.
        seed: of the weights.
    """

    shapes: tuple[RecurrentShape, ...]
    batches: tuple[Batch, ...]
    steps: int = 4
    seed: int = 0


class RecurrentRow(NamedTuple):
    """What one contestant came to."""

    model: str
    loop: str
    parameters: int
    tokens_per_second: Spread
    over_textbook: Spread
    over_textbook_cpu: Spread
    over_joey: Spread | None
    """Times the speed of Joey NMT's model, None where it has none or is not installed."""


def contestants(shape: RecurrentShape, seed: int = 0) -> dict[str, Contestant]:
    """All that can train a model of this shape, by name."""
    torch.manual_seed(seed)
    found: dict[str, Contestant] = {
        "textbook": PlainLoop(shape, model=TextbookRecurrent(shape)),
    }
    if installed() and shape.attention in SCORES:
        found["Joey NMT"] = PlainLoop(shape, model=JoeyRecurrent(shape))
    found["seqattn"] = OwnStep(shape, model=recurrent_model(shape))
    return found


def measure_recurrent(plan: RecurrentPlan) -> list[RecurrentRow]:
    """Runs the contests, one model after another."""
    rows = []
    for shape in plan.shapes:
        loops = contestants(shape, plan.seed)
        samples: dict[str, list[Sample]] = {name: [] for name in loops}
        for start in range(0, len(plan.batches), plan.steps):
            batches = plan.batches[start : start + plan.steps]
            for name, loop in loops.items():
                samples[name].append(loop.run(batches))
        counted = {name: found[1:] for name, found in samples.items()}
        rows += [_row(shape, name, loop.parameters, counted) for name, loop in loops.items()]
    return rows


def _row(
    shape: RecurrentShape, loop: str, parameters: int, samples: dict[str, list[Sample]]
) -> RecurrentRow:
    own, textbook, joey = samples[loop], samples["textbook"], samples.get("Joey NMT")
    return RecurrentRow(
        shape.name,
        loop,
        parameters,
        rates(own),
        ratios(own, textbook),
        ratios(own, textbook, cpu=True),
        None if joey is None else ratios(own, joey),
    )
