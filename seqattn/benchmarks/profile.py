"""Where our training step and our decoding spend their time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch.profiler import ProfilerActivity, profile

from seqattn.benchmarks.own import OwnStep
from seqattn.benchmarks.shape import Shape
from seqattn.data.batch import Batch


class Operation(NamedTuple):
    """An operator of torch: its share (0 to 1) of all CPU time by itself, and calls per piece."""

    name: str
    share: float
    milliseconds: float
    calls: float


def profile_training(shape: Shape, batches: Sequence[Batch], precision: str) -> list[Operation]:
    """The operators of our training step, dearest first, per step.

    Args:
        shape: of the model.
        batches: two at least; the first warms up.
        precision: 32 or bf16-mixed.
    """
    loop = OwnStep(shape, precision)
    loop.run(batches[:1])
    return profiled(lambda: loop.run(batches[1:]), len(batches) - 1)


def profiled(work: Callable[[], object], pieces: int) -> list[Operation]:
    """The operators of `work`, dearest first, per piece of which it does so many."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        work()
    found = recorded.key_averages()
    total = sum(event.self_cpu_time_total for event in found)
    ordered = sorted(found, key=lambda event: -event.self_cpu_time_total)
    return [
        Operation(
            event.key,
            event.self_cpu_time_total / total,
            event.self_cpu_time_total / 1000 / pieces,
            event.count / pieces,
        )
        for event in ordered
    ]
