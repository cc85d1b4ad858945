"""How many threads long work on a CPU gets."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Protocol, TypeVar

import torch

from seqattn.runs.run_directory import world_size
from seqattn.runs.trainer_options import TrainerOptions

Found = TypeVar("Found")
_ROUNDS = 5
_SECONDS = 0.05  # of each number of threads in a round
_WORTH = 1.2  # times as fast that more threads must be


@contextmanager
def threads_of(trainer: TrainerOptions, before: int | None) -> Iterator[None]:
    """A block in which a training has the threads asked for, or the quickest number of them.

    Args:
        trainer: its `threads` is how many; None to look which number is quickest.
        before: those of the run that goes on, whose sums are made by as many; None for a new one.
    """
    most = torch.get_num_threads()
    threads = trainer.threads or most
    if trainer.threads is None and trainer.on_cpu and world_size() == 1:
        threads = min(before, most) if before else _quickest(most)
        if threads < most:
            why = "as it began" if before else "which other work slows down less"
            all_of_them = f"(trainer.threads={most} for all)"
            print(f"training on {threads} of {most} threads, {why} {all_of_them}", file=sys.stderr)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(most)


class _OnDevice(Protocol):
    @property
    def device(self) -> str: ...


Run = TypeVar("Run", bound=_OnDevice)


def on_quickest_threads(run: Callable[[Run], Found]) -> Callable[[Run], Found]:
    """Decorates the `run` of what looks into a model: on a CPU it has the quickest number."""

    @wraps(run)
    def running(self: Run) -> Found:
        most = torch.get_num_threads()
        threads = _quickest(most) if self.device == "cpu" else most
        if threads < most:
            why = "which other work slows down less"
            print(f"working on {threads} of {most} threads, {why}", file=sys.stderr)
        torch.set_num_threads(threads)
        try:
            return run(self)
        finally:
            torch.set_num_threads(most)

    return running


def _quickest(most: int) -> int:
    """The number of threads, halved from `most` on down to 1, that does most work now, or nearly.

    Threads wait for each other after every operation, so that beside other work several may be
    many times slower than one.

    The work of all rounds counts, not a typical round's: threads that wait for a busy core do well
    at times, and a training is as fast as its mean.
    """
    counts = [most >> n for n in range(most.bit_length())]
    if len(counts) == 1:
        return most
    left, right = torch.randn(1024, 128), torch.randn(128, 128)
    rates = dict.fromkeys(counts, 0.0)
    for _ in range(_ROUNDS):
        for count in counts:
            torch.set_num_threads(count)
            done, began = 0, time.perf_counter()
            while time.perf_counter() < began + _SECONDS:
                torch.relu(left @ right)
                done += 1
            rates[count] += done / (time.perf_counter() - began)
    return min(count for count in counts if rates[count] * _WORTH > max(rates.values()))
