"""Batches of rows of similar length, within a budget of tokens."""

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from seqattn.data.options import BatchLimits
from seqattn.errors import UserError

Ints = npt.NDArray[np.integer[Any]]

# Noise on the difference of source and target length, in tokens or as a share of it. More noise
# varies batches more between epochs, and pads more: for 100,000 pairs in batches of 4,096 tokens,
# 0.5, 0.6, 1 and 1.5 pad 2.8, 3.0, 3.5 and 4.1 %, and 60, 55, 40 and 31 % of a row's neighbors
# are the same in the next epoch; 13 % for a million pairs.
_BLUR, _RELATIVE_BLUR = 0.5, 1 / 32


class BucketSampler(Sampler[list[int]]):
    """Batch sampler of a `DataLoader`: lists of row numbers for this rank and epoch.

    Rows are grouped into bands by their longer side, from the longest to the shortest. Within a
    band they are sorted by the difference of both sides, in alternating directions, so that
    neighbors are alike. Batches are cut from this sequence, each as large as the limits allow for
    the longest row of its bands. Each epoch adds noise to the differences, so that rows are grouped
    anew, while all epochs have the same batch sizes. Every row occurs exactly once.

    An epoch is a whole number of optimizer steps of `step_batches` batches each (the fullest are
    halved for that; if all have one row, the surplus is left for another epoch). Rank r takes every
    `world`-th batch of a step from the r-th on, so that steps do not depend on the number of ranks.
    The order depends only on the seed and the epoch. Epoch 0 begins with the longest rows, so that
    running out of memory shows at once.

    Args:
        source_lengths: (N,) tokens of each source, its end mark included.
        target_lengths: (N,) tokens of each target, its end mark included.
        limits: they also round the lengths up.
        seed: seed of the order, at least 0.
        rank: this process, from 0 to `world` - 1.
        shuffle: False to always yield the same batches, longest first, and all of them, so that
            one rank may have one batch more than another.
        step_batches: batches of an optimizer step, a multiple of `world`; None for `world`.
        least: number of batches of an epoch, or more; the fullest are halved for that.

    Attributes:
        epoch: the epoch whose batches come next.
        sampler: object that receives the trainer's epoch: the loader; None before there is one.
        start_batch: batches that the next iteration skips, to resume within an epoch; 0 after it.

    Raises:
        UserError: for fewer rows than batches of a step, a number of ranks that does not divide
            the batches, or a single row that exceeds the limits.
    """

    def __init__(
        self,
        source_lengths: Ints,
        target_lengths: Ints,
        limits: BatchLimits,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        shuffle: bool = True,
        step_batches: int | None = None,
        least: int = 1,
    ) -> None:
        self.step_batches = step_batches or world
        _check_step(self.step_batches, world, len(source_lengths))
        source_lengths, target_lengths = map(limits.rounded, (source_lengths, target_lengths))
        longer = np.maximum(source_lengths, target_lengths)
        longest = int(longer.max())
        advice = "; raise them or lower loader.max_length"
        limits.check_holds(longest, f"the longest row ({longest} tokens)", advice)
        self.band = bands(longer)
        self.difference = np.subtract(source_lengths, target_lengths)
        sizes, lengths = cut_batches(*sizes_of(self.band, longer), limits)
        while (len(sizes) % self.step_batches or len(sizes) < least) and max(sizes) > 1:
            largest = int(np.argmax(sizes))
            half = sizes[largest] // 2
            sizes[largest : largest + 1] = [sizes[largest] - half, half]
            lengths.insert(largest, lengths[largest])
        self.sizes, self.lengths = np.array(sizes), np.array(lengths)
        self.seed, self.rank, self.world, self.shuffle = seed, rank, world, shuffle
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @cached_property
    def plan(self) -> str:
        """Digest of the batches of all epochs, 16 hexadecimal digits."""
        digest = hashlib.sha256(self.sizes.tobytes() + self.band.tobytes())
        digest.update(self.difference.astype(np.int64).tobytes())
        digest.update(f"{self.seed} {self.step_batches} {self.shuffle}".encode())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        """Return the number of this rank's batches in an epoch."""
        return len(range(self.rank, self._count, self.world))

    @property
    def on_every_rank(self) -> int:
        """Smallest number of batches of an epoch on any rank."""
        return self._count // self.world

    @property
    def _count(self) -> int:
        """Number of batches of an epoch, over all ranks."""
        beyond = len(self.sizes) % self.step_batches if self.shuffle else 0
        return len(self.sizes) - beyond

    def __iter__(self) -> Iterator[list[int]]:
        start, self.start_batch = self.start_batch, 0
        generator = np.random.default_rng([self.seed, self.epoch]) if self.shuffle else None
        rows = in_line(self.band, self.difference, generator)
        batches = np.split(rows, np.cumsum(self.sizes)[:-1])
        order = self._order(generator)[: self._count]
        for number in order[self.rank :: self.world][start:]:
            yield batches[number].tolist()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start_batch = epoch, 0

    def _order(self, generator: np.random.Generator | None) -> Ints:
        count = len(self.sizes)
        longest = np.argsort(-self.lengths * count + np.arange(count))
        if generator is None:
            return longest
        order = generator.permutation(count)
        if self.epoch > 0:
            return order
        first = longest[: self.step_batches]
        return np.concatenate([first, order[~np.isin(order, first)]])


def _check_step(batches: int, world: int, rows: int) -> None:
    if batches % world:
        raise UserError(
            f"loader.step_batches must be a multiple of the number of ranks ({world}), "
            f"got {batches}"
        )
    if rows < batches:
        raise UserError(
            f"a step of {batches} batches needs at least one row per batch, got {rows}; lower "
            "loader.step_batches, trainer.devices or trainer.accumulate_grad_batches"
        )


def batch_count(
    source_lengths: Ints, target_lengths: Ints, rows: Ints, limits: BatchLimits, multiple: int
) -> int:
    """Return the number of batches that a `BucketSampler` makes, given only lengths.

    Args:
        source_lengths, target_lengths: (N,) distinct pairs of lengths.
        rows: (N,) number of rows with each pair.
        multiple: the number of batches is a multiple of it.
    """
    longer = limits.rounded(np.maximum(source_lengths, target_lengths))
    counts, bounds = sizes_of(bands(longer), longer, rows)
    count, total = len(cut_batches(counts, bounds, limits)[0]), int(rows.sum())
    rounded = -(-count // multiple) * multiple
    return rounded if rounded <= total else total // multiple * multiple


def bands(longer: Ints) -> npt.NDArray[np.int64]:
    """Return the band of each row by its longer side, (N,), longest rows first."""
    # bands widen to 1/32 of the length: long documents seldom have equal lengths
    edges = [0]
    while edges[-1] < int(longer.max()):
        edges.append(edges[-1] + max(1, edges[-1] // 32))
    return len(edges) - 1 - np.searchsorted(edges, longer)


def sizes_of(band: Ints, longer: Ints, rows: Ints | None = None) -> tuple[list[int], list[int]]:
    """Return the number of rows of each band, and the length of its longest row.

    Args:
        band: (N,) from `bands(longer)`.
        rows: (N,) number of rows that each entry stands for; None for one.
    """
    bounds = np.zeros(int(band.max()) + 1, np.int64)
    np.maximum.at(bounds, band, longer)
    return np.bincount(band, rows).astype(np.int64).tolist(), bounds.tolist()


def in_line(
    band: Ints, difference: Ints, generator: np.random.Generator | None
) -> npt.NDArray[np.int64]:
    """Return (N,) row numbers by band, sorted by difference in alternating directions.

    Args:
        band: (N,) from `bands`.
        difference: (N,) source length minus target length, in tokens.
        generator: draws the noise; None for a fixed order.
    """
    blurred = difference.astype(np.float64)
    if generator is not None:
        width = np.maximum(_BLUR, _RELATIVE_BLUR * np.abs(blurred))
        blurred += width * generator.uniform(-1, 1, len(blurred))
    return np.lexsort((np.where(band % 2, blurred, -blurred), band))


def cut_batches(
    counts: list[int], bounds: list[int], limits: BatchLimits
) -> tuple[list[int], list[int]]:
    """Cut the sequence of bands into batches, each as full as the limits allow."""
    sizes: list[int] = []
    lengths: list[int] = []
    rows = length = 0
    for count, bound in zip(counts, bounds, strict=True):
        while count:
            grown = max(length, bound)
            fit = min(limits.rows(grown) - rows, count)
            if fit > 0:
                rows, length, count = rows + fit, grown, count - fit
            else:
                sizes.append(rows)
                lengths.append(length)
                rows = length = 0
    return [*sizes, rows], [*lengths, length]
