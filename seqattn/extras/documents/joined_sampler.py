"""Batches of rows that are joined anew in each epoch."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from seqattn.data.bucketing import BucketSampler, batch_count
from seqattn.data.options import BatchLimits

Ints = npt.NDArray[np.int64]
_TRIED = 4
"""Epochs that set the number of batches; of the later ones, about a fifth is drawn again."""


class Joins:
    """Ways to part N pairs into rows that join consecutive ones.

    Args:
        lengths: for source and target (N,) tokens of each pair. A row has as many as its pairs, as
            a line break stands in the place of an end mark.
        begins: (N,) True for pairs that begin a document.
        limits: largest number of a row's tokens on each side; a longer pair is a row of its own.

    Attributes:
        reach: (N,) largest number of pairs that a row may join from each pair on.
    """

    def __init__(
        self, lengths: Sequence[Ints], begins: npt.NDArray[np.bool_], limits: Sequence[int]
    ) -> None:
        self.number = len(begins)
        self._ends = [np.append(0, side.cumsum()) for side in lengths]
        stop = np.append(np.flatnonzero(begins)[1:], self.number)[begins.cumsum() - 1]
        for ends, limit in zip(self._ends, limits, strict=True):
            stop = np.minimum(stop, np.searchsorted(ends, ends[:-1] + limit, "right") - 1)
        self.reach: Ints = np.maximum(stop - np.arange(self.number), 1)

    def lengths(self, firsts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
        """Return source and target tokens of rows that join `sizes` pairs from `firsts` on."""
        source, target = (ends[firsts + sizes] - ends[firsts] for ends in self._ends)
        return source, target

    def draw(self, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the first pair of each row, and the number of its pairs, which is drawn.

        Each doubling of a row's pairs is as probable as another, up to as many as it may join.
        """
        sizes = ((self.reach + 1) ** random.random(self.number)).astype(np.int64)
        sizes = np.minimum(sizes, self.reach)
        stops, firsts, pair = (np.arange(self.number) + sizes).tolist(), [], 0
        while pair < self.number:
            firsts.append(pair)
            pair = stops[pair]
        return np.array(firsts), sizes[firsts]


class JoinedSampler(Sampler[list[int]]):
    """Batch sampler of joined rows, with the interface of `BucketSampler`.

    Which pairs are joined depends on seed and epoch; each pair is in one row of an epoch. The
    batches of an epoch are those of a `BucketSampler` of its rows. Every epoch has as many: the
    most of the first few; an epoch with more is drawn again, and of one with fewer the fullest
    batches are halved.

    Args:
        order: seed, rank, world and step_batches as of `BucketSampler`, like all attributes.

    Raises:
        UserError: as `BucketSampler`.
    """

    def __init__(self, joins: Joins, limits: BatchLimits, **order: Any) -> None:
        self.joins, self.limits, self.order = joins, limits, order
        first = BucketSampler(*joins.lengths(*self._draw(0, 1)), limits, **order)
        self.seed, self.step_batches = first.seed, first.step_batches
        self.rank, self.world = first.rank, first.world
        self.count = max(self._batches(*self._draw(epoch, 1)) for epoch in range(_TRIED))
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @cached_property
    def plan(self) -> str:
        """Digest of the batches of all epochs, 16 hexadecimal digits."""
        limits = self.limits.digested
        digest = hashlib.sha256(f"{limits} {self.seed} {self.step_batches} {self.count}".encode())
        pairs = np.arange(self.joins.number)
        for numbers in (self.joins.reach, *self.joins.lengths(pairs, np.ones_like(pairs))):
            digest.update(numbers.tobytes())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        """Return the number of batches of an epoch, equal on all ranks."""
        return self.count // self.world

    on_every_rank = property(__len__)

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start_batch = self.start_batch, 0
        for attempt in count(1):
            firsts, sizes = self._draw(self.epoch, attempt)
            if len(firsts) >= self.count >= self._batches(firsts, sizes):
                break
        lengths = self.joins.lengths(firsts, sizes)
        batches = BucketSampler(*lengths, self.limits, **self.order, least=self.count)
        batches.epoch, batches.start_batch = self.epoch, start
        numbers = firsts + (sizes - 1) * self.joins.number
        yield from (numbers[batch].tolist() for batch in batches)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start_batch = epoch, 0

    def _draw(self, epoch: int, attempt: int) -> tuple[Ints, Ints]:
        """Return the rows of an epoch. Args: attempt: from 1, as the draw of batches has none."""
        seed = self.order.get("seed", 0)
        return self.joins.draw(np.random.default_rng([seed, epoch, attempt]))

    def _batches(self, firsts: Ints, sizes: Ints) -> int:
        lengths = self.joins.lengths(firsts, sizes)
        return batch_count(*lengths, np.ones_like(firsts), self.limits, self.step_batches)
