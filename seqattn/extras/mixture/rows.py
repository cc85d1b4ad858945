"""Training rows of several sources, and their batches in the order of a schedule."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count, islice
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from seqattn.data.loader import TokenRows
from seqattn.data.options import BatchLimits
from seqattn.errors import UserError
from seqattn.extras.mixture.schedule import Schedule, Stage
from seqattn.screen import say

_EPOCHS = 10**9
"""Bound on the passes over a source."""


@contextmanager
def errors_of(source: str) -> Iterator[None]:
    """Name a source in the errors of a block, which speak of its keys as data.KEY."""
    try:
        yield
    except UserError as error:
        error.args = (f"data.sources.{source}: {error}",)
        raise


class MixtureRows(TokenRows[Any]):
    """Rows of several sources, each with its own batches; lengths are the longest of each.

    Row `epoch * N + first + n` of N rows in all is row n of a source, whose first is `first`, in
    its own epoch: a source draws anew in each pass over it, and a pass may end anywhere.

    Args:
        parts: rows of each source, by name.
        epoch_steps: optimizer steps of an epoch; None for those of one pass over each source.
    """

    def __init__(
        self,
        parts: Mapping[str, TokenRows[Any]],
        stages: Sequence[Stage],
        epoch_steps: int | None = None,
    ) -> None:
        self.parts, self._stages, self._epoch_steps = parts, stages, epoch_steps
        self._schedule: Schedule | None = None
        self._firsts = np.cumsum([0, *map(len, parts.values())])
        self.source_lengths, self.target_lengths = (
            np.array([getattr(rows, side).max() for rows in parts.values()])
            for side in ("source_lengths", "target_lengths")
        )

    def __len__(self) -> int:
        return int(self._firsts[-1]) * _EPOCHS

    def sampler(self, limits: BatchLimits, **order: Any) -> "MixtureSampler":
        seed, samplers = order.pop("seed", 0), {}
        for number, (name, rows) in enumerate(self.parts.items()):
            with errors_of(name):
                samplers[name] = rows.sampler(limits, seed=seed + number, **order)
        firsts, total = self._firsts[:-1].tolist(), int(self._firsts[-1])
        batches = MixtureSampler(samplers, firsts, total, self._stages, self._epoch_steps, seed)
        self._schedule = batches.schedule
        if batches.rank == 0:
            say(f"epochs of {batches.steps:,} steps: {batches.schedule.summary}")
        return batches

    def batch(self, indices: Sequence[int]) -> Any:
        total = int(self._firsts[-1])
        source = int(np.searchsorted(self._firsts, indices[0] % total, "right")) - 1
        rows = [*self.parts.values()][source]
        rows.epoch = indices[0] // total
        first = rows.epoch * total + int(self._firsts[source])
        return rows.batch([index - first for index in indices])

    def summary(self, split: str) -> str:
        return "; ".join(f"{name}: {rows.summary(split)}" for name, rows in self.parts.items())

    @property
    def advice(self) -> str:
        return next(iter(self.parts.values())).advice

    def facts(self, steps: int) -> dict[str, str]:
        if self._schedule is None:
            return {}
        read = zip(self._schedule.sizes.items(), self._schedule.read(steps))
        return {"passes": " · ".join(f"{name} {n / size:,.2f}" for (name, size), n in read)}


class MixtureSampler(Sampler[list[int]]):
    """Batch sampler of several sources, with the interface of `BucketSampler`.

    All batches of an optimizer step are those of one source, the next of its own sampler; after the
    last, that begins its next epoch. An epoch of the mixture has any number of steps.

    Args:
        samplers: of each source, by name.
        firsts, total: number of each source's first row, and of all rows, see `MixtureRows`.
        epoch_steps: optimizer steps of an epoch; None for those of one pass over each source.

    Attributes:
        sizes: steps of a pass over each source, by name.
    """

    def __init__(
        self,
        samplers: Mapping[str, Any],
        firsts: Sequence[int],
        total: int,
        stages: Sequence[Stage],
        epoch_steps: int | None,
        seed: int,
    ) -> None:
        self.samplers, self._firsts, self._total, self.seed = samplers, firsts, total, seed
        first = next(iter(samplers.values()))
        self.rank, self.world, self.step_batches = first.rank, first.world, first.step_batches
        self._of_rank = self.step_batches // self.world
        self.sizes = {name: len(batches) // self._of_rank for name, batches in samplers.items()}
        self.schedule = Schedule(stages, self.sizes, seed)
        self.steps = epoch_steps or sum(self.sizes.values())
        self._streams: tuple[list[int], list[Iterator[list[int]]]] = [], []
        """Steps that have read each source, and its batches after them."""
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @cached_property
    def plan(self) -> str:
        """Digest of the batches of all epochs, 16 hexadecimal digits."""
        plans = {name: sampler.plan for name, sampler in self.samplers.items()}
        content = f"{plans} {self.sizes} {self.schedule} {self.steps} {self.step_batches}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def __len__(self) -> int:
        """Return the number of batches of an epoch, equal on all ranks."""
        return self.steps * self._of_rank

    on_every_rank = property(__len__)

    def __iter__(self) -> Iterator[list[int]]:
        (step, skipped), self.start_batch = divmod(self.start_batch, self._of_rank), 0
        first, stop = self.epoch * self.steps + step, (self.epoch + 1) * self.steps
        (read, streams), self._streams = self._streams, ([], [])
        if read != self.schedule.read(first):  # else those of the epoch before go on
            read = self.schedule.read(first)
            streams = [self._stream(number, steps) for number, steps in enumerate(read)]
        for source in self.schedule.sources(first, stop - first).tolist():
            yield from islice(streams[source], skipped, self._of_rank)
            skipped = 0
        self._streams = self.schedule.read(stop), streams

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start_batch = epoch, 0

    def _stream(self, source: int, steps: int) -> Iterator[list[int]]:
        """Yield this rank's batches of a source in endless passes, after some steps."""
        name = [*self.samplers][source]
        sampler, (first, start) = self.samplers[name], divmod(steps, self.sizes[name])
        for epoch in count(first):
            sampler.set_epoch(epoch)
            sampler.start_batch, start = start * self._of_rank, 0
            base = epoch * self._total + self._firsts[source]
            for batch in sampler:
                yield [base + row for row in batch]
