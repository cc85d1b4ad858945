"""Batch order of sharded corpora: several shards (a window) are loaded and batched together.

Windows are fixed, so that each has the same number of batches in every epoch; the order of windows
and the batches of a window depend on (seed, pass, window). Numbers of batches follow from the
stored lengths, so that a run resumes within an epoch without reading what comes before.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from seqattn.data.bucketing import BucketSampler, Ints, batch_count
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.errors import UserError
from seqattn.extras.shards.shard_files import (
    AGAIN,
    LENGTHS,
    Manifest,
    histogram,
    open_shard,
    read_lengths,
)
from seqattn.storage import digest_of, is_file


class ShardedCorpus:
    """Training pairs of a prepared directory, as read with some options.

    Args:
        window: number of shards that are batched together.
        first: index of its first pair among those of all corpora.
        sizes: vocabulary sizes of source and target.

    Attributes:
        firsts: index of each shard's first pair among those of all corpora.
        digest: digest of the rows that are read.

    Raises:
        UserError: if a file is missing, or does not have the size in the manifest.
    """

    def __init__(
        self,
        root: Path,
        manifest: Manifest,
        window: int,
        first: int,
        options: LoaderOptions,
        sizes: Sequence[int] = (1 << 31, 1 << 31),
    ) -> None:
        self.name, self.options, self.entries = str(root), options, manifest.train
        self.paths = [root / entry.name for entry in self.entries]
        for path, entry in zip(self.paths, self.entries, strict=True):
            if not is_file(path) or path.stat().st_size != entry.bytes:
                raise UserError(f"{path} is missing or damaged; {AGAIN}")
        self._table, self._sizes = read_lengths(root, manifest), sizes
        self.firsts = first + np.cumsum([0, *(entry.pairs for entry in self.entries)])
        self._parts = np.cumsum([0, *(entry.lengths for entry in self.entries)])
        read = (options.max_length, options.source_length, options.long_sources, window)
        shas = [entry.sha256 for entry in self.entries]
        self.digest = hashlib.sha256(f"{read} {shas}".encode()).hexdigest()
        # windows of nearly equal size, so that the last one is not small
        self.windows = max(1, -(-len(self.entries) // window))
        self._bounds = [len(self.entries) * n // self.windows for n in range(self.windows + 1)]

    def lengths(self, window: int) -> npt.NDArray[np.int64]:
        """Return (3, E): source length, target length, and number of a window's rows with both."""
        start, stop = (self._parts[self._bounds[n]] for n in (window, window + 1))
        return self._table[start:stop].T.astype(np.int64)

    def histogram(self, window: int) -> npt.NDArray[np.int64]:
        """Return `lengths` of the training rows, with sources truncated as they are read."""
        lengths = self.lengths(window)
        lengths = lengths[:, self._readable(lengths[0], lengths[1])]
        lengths[0] = np.minimum(lengths[0], self.options.source_length)
        return lengths

    def read(self, window: int) -> list[Ints]:
        """Return the training rows of a window, after checking its files.

        Returns:
            (N,) their indices among the pairs of all corpora, and (N,) each the number of tokens
                read of source and target, end marks included.
        """
        parts = []
        for number in range(self._bounds[window], self._bounds[window + 1]):
            if digest_of(self.paths[number]) != self.entries[number].sha256:
                raise UserError(f"{self.paths[number]} is damaged; {AGAIN}")
            shard, pairs = open_shard(self.paths[number]), self.entries[number].pairs
            if len(shard) != pairs or not shard.is_below(self._sizes):
                raise UserError(
                    f"{self.paths[number]} does not contain {pairs:,} pairs of ids below "
                    f"{' and '.join(map(str, self._sizes))}; {AGAIN}"
                )
            source, target = shard.lengths()
            part = self._table[self._parts[number] : self._parts[number + 1]]
            if not np.array_equal(histogram([source, target]), part):
                raise UserError(f"{self.paths[number]} does not match {LENGTHS}; {AGAIN}")
            selected = np.flatnonzero(self._readable(source, target))
            clipped = np.minimum(source[selected], self.options.source_length)
            parts.append((selected + self.firsts[number], clipped, target[selected]))
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _readable(self, source: Ints, target: Ints) -> npt.NDArray[np.bool_]:
        fits = (target <= self.options.max_length) & (np.minimum(source, target) > 1)
        drops = self.options.long_sources == "drop"
        return fits & (source <= self.options.source_length) if drops else fits


class Passes:
    """Batches of one corpus, in endless passes over it.

    Args:
        step_batches: the number of batches of every window is a multiple of it.

    Raises:
        UserError: if a single row exceeds the limits, or a window has fewer rows than batches.
    """

    def __init__(
        self, corpus: ShardedCorpus, limits: BatchLimits, seed: int, step_batches: int
    ) -> None:
        self.corpus, self.limits, self.seed, self.step_batches = corpus, limits, seed, step_batches
        counts = []
        for window in range(corpus.windows):
            source, target, rows = corpus.histogram(window)
            if int(rows.sum()) < step_batches:
                raise UserError(
                    f"{corpus.name} must have at least {step_batches} pairs in each window of "
                    f"shards, got {int(rows.sum())}; raise data.window or loader.max_length"
                )
            counts.append(batch_count(source, target, rows, limits, step_batches))
        self.counts = np.array(counts)

    def __len__(self) -> int:
        """Return the number of batches of one pass."""
        return int(self.counts.sum())

    def batches(self, first: int) -> Iterator[Ints]:
        """Yield the row indices of each batch from number `first` on, counted over all passes."""
        first_epoch, start = divmod(first, len(self))
        for number in count(first_epoch):
            order = np.random.default_rng([self.seed, number]).permutation(len(self.counts))
            for window in order.tolist():
                if start >= self.counts[window]:
                    start -= int(self.counts[window])
                    continue
                yield from self._window(window, number, start)
                start = 0

    def _window(self, window: int, epoch: int, start: int) -> Iterator[Ints]:
        indices, source, target = self.corpus.read(window)
        window_seed = int(np.random.SeedSequence([self.seed, window]).generate_state(1)[0])
        step = self.step_batches
        sampler = BucketSampler(source, target, self.limits, seed=window_seed, step_batches=step)
        if len(sampler) != self.counts[window]:
            name = self.corpus.name
            raise UserError(f"the shards of {name} do not match its manifest; {AGAIN}")
        sampler.epoch, sampler.start_batch = epoch, start
        del source, target
        yield from (indices[rows] for rows in sampler)


class WindowSampler(Sampler[list[int]]):
    """Batch sampler of sharded corpora, with the interface of `BucketSampler`.

    An epoch has as many batches as one pass over each corpus. Each corpus gets its share of them,
    in an order drawn anew each epoch. A corpus continues where the previous epoch ended, and
    restarts after a full pass.

    Args:
        weights: relative share of each corpus in an epoch's batches; None for its number of
            batches.
        seed, rank, world: as `BucketSampler`, like all attributes.
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
        self.counts = _rounded([len(stream) for stream in passes], weights)
        self.step_batches = passes[0].step_batches
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @cached_property
    def plan(self) -> str:
        """Digest of the batches of all epochs, 16 hexadecimal digits."""
        digest = hashlib.sha256(f"{self.counts} {self.seed} {self.step_batches}".encode())
        for stream in self.passes:
            digest.update(f"{stream.corpus.digest} {stream.limits.digested}".encode())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        """Return the number of batches of an epoch, equal on all ranks."""
        return sum(self.counts) // self.world

    on_every_rank = property(__len__)

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start_batch = self.start_batch * self.world, 0
        corpora = np.repeat(np.arange(len(self.counts), dtype=np.uint16), self.counts)
        if len(self.counts) > 1:
            corpora = np.random.default_rng([self.seed, self.epoch]).permutation(corpora)
        used = np.bincount(corpora[:start], minlength=len(self.counts)).tolist()
        streams = [
            stream.batches(self.epoch * number + num_used)
            for stream, number, num_used in zip(self.passes, self.counts, used, strict=True)
        ]
        for number in range(start, len(corpora)):
            batch = next(streams[corpora[number]])
            if number % self.world == self.rank:
                yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start_batch = epoch, 0


def _rounded(batches: list[int], weights: Sequence[float] | None) -> list[int]:
    """Distribute the total number of batches by weight, at least one to each corpus."""
    if weights is None:
        return batches
    total = sum(batches)
    exact = np.array(weights, np.float64) / sum(weights) * total
    shares = np.maximum(1, np.floor(exact)).astype(int)
    most_short = np.argsort(shares - exact, kind="stable")
    shares[most_short[: max(0, total - shares.sum())]] += 1
    while shares.sum() > total:  # tiny shares have been raised to one
        shares[np.argmax(np.where(shares > 1, shares - exact, -np.inf))] -= 1
    return shares.tolist()
