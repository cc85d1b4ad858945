"""The order of batches of corpora in shards: a window of shards at a time, planned by length.

Which shards make a window never changes, so that the batches of a window are as many in every
epoch; the order of windows and what of a window makes a batch are decided by (seed, pass, window).
All numbers of batches follow from the lengths that the manifest's file holds, so that a place in an
epoch is found without reading what comes before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from seqattn.data.bucketing import BatchLimits, BucketSampler
from seqattn.data.length_bands import Ints, batch_count
from seqattn.errors import UserError


class Rows(NamedTuple):
    """Rows that are trained on.

    `places`: (N,) their numbers among all of all corpora. `source_lengths`, `target_lengths`: (N,)
    tokens that are read of each, end marks counted.
    """

    places: Ints
    source_lengths: Ints
    target_lengths: Ints


class Corpus(Protocol):
    """What a `WindowSampler` asks of a corpus."""

    name: str
    digest: str
    """Names the rows that are read."""
    windows: int

    def histogram(self, window: int) -> npt.NDArray[np.int64]:
        """(3, E) lengths of source and target that are trained on, and how many rows have both."""

    def read(self, window: int) -> Rows:
        """The rows of a window, its files checked."""


class Passes:
    """Batches of one corpus, pass after pass without end.

    Args:
        corpus: gives the rows.
        limits: what a batch may hold.
        seed: of the order.
        step_batches: the batches of every window are a multiple of it.

    Raises:
        UserError: a row that alone exceeds the limits, or a window with fewer rows than batches.
    """

    def __init__(self, corpus: Corpus, limits: BatchLimits, seed: int, step_batches: int) -> None:
        self.corpus, self.limits, self.seed, self.step_batches = corpus, limits, seed, step_batches
        counts = []
        for window in range(corpus.windows):
            source, target, rows = corpus.histogram(window)
            if int(rows.sum()) < step_batches:
                raise UserError(
                    f"{corpus.name} must have {step_batches} pairs in each window of shards, a "
                    f"window has {int(rows.sum())}; raise data.window or loader.max_length"
                )
            counts.append(batch_count(source, target, rows, limits, step_batches))
        self.counts = np.array(counts)

    def __len__(self) -> int:
        """The batches of one pass."""
        return int(self.counts.sum())

    def batches(self, first: int) -> Iterator[Ints]:
        """The places of each batch from the first-th on, counted over all passes."""
        begin, start = divmod(first, len(self))
        for number in count(begin):
            order = np.random.default_rng([self.seed, number]).permutation(len(self.counts))
            for window in order.tolist():
                if start >= self.counts[window]:
                    start -= int(self.counts[window])
                    continue
                yield from self._window(window, number, start)
                start = 0

    def _window(self, window: int, epoch: int, start: int) -> Iterator[Ints]:
        places, source, target = self.corpus.read(window)
        own = int(np.random.SeedSequence([self.seed, window]).generate_state(1)[0])
        step = self.step_batches
        sampler = BucketSampler(source, target, self.limits, seed=own, step_batches=step)
        if len(sampler) != self.counts[window]:
            raise UserError(f"the shards of {self.corpus.name} are not those of its manifest")
        sampler.epoch, sampler.start_batch = epoch, start
        del source, target
        yield from (places[rows] for rows in sampler)


class WindowSampler(Sampler[list[int]]):
    """A `DataLoader`'s batches of corpora in shards; plays the part of a `BucketSampler`.

    An epoch has as many batches as one pass over each corpus; of these each corpus has its share,
    in an order that is drawn anew each epoch. A corpus goes on in an epoch where it stood at the
    end of the one before, and begins anew when all of it was seen.

    Args:
        passes: the batches of each corpus.
        weights: of each corpus, its share of an epoch's batches times any number; None for as many
            batches as it has.
        seed, rank, world: as `BucketSampler`.

    Attributes:
        epoch, sampler, start_batch, step_batches, world: as `BucketSampler`.
    """

    def __init__(
        self,
        passes: Sequence[Passes],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.passes, self.seed, self.rank, self.world = passes, seed, rank, world
        self.counts = _rounded([len(one) for one in passes], weights)
        self.step_batches = passes[0].step_batches
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @property
    def plan(self) -> str:
        """Names the batches of all epochs, in 16 hexadecimal digits."""
        digest = hashlib.sha256(f"{self.counts} {self.seed} {self.step_batches}".encode())
        for one in self.passes:
            limits = (one.limits.max_tokens, one.limits.max_rows, one.limits.max_square)
            digest.update(f"{one.corpus.digest} {limits}".encode())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        """This rank's batches in a whole epoch, as many as every other's."""
        return sum(self.counts) // self.world

    on_every_rank = property(__len__)

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start_batch = self.start_batch * self.world, 0
        corpora = np.repeat(np.arange(len(self.counts), dtype=np.uint16), self.counts)
        if len(self.counts) > 1:
            corpora = np.random.default_rng([self.seed, self.epoch]).permutation(corpora)
        seen = np.bincount(corpora[:start], minlength=len(self.counts)).tolist()
        streams = [
            one.batches(self.epoch * number + before)
            for one, number, before in zip(self.passes, self.counts, seen, strict=True)
        ]
        for number in range(start, len(corpora)):
            batch = next(streams[corpora[number]])
            if number % self.world == self.rank:
                yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; another than the present one begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start_batch = epoch, 0


def _rounded(batches: list[int], weights: Sequence[float] | None) -> list[int]:
    """Shares of the sum of all batches by weight, each of one at least."""
    if weights is None:
        return batches
    total = sum(batches)
    exact = np.array(weights, np.float64) / sum(weights) * total
    found = np.maximum(1, np.floor(exact)).astype(int)
    most_short = np.argsort(found - exact, kind="stable")
    found[most_short[: max(0, total - found.sum())]] += 1
    found[np.argmax(found)] += total - found.sum()  # where tiny shares were raised to one
    return found.tolist()
