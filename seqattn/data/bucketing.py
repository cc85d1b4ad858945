"""Which rows make a batch: similar lengths together, within a budget of tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from torch.utils.data import Sampler

from seqattn.checking import Count, checked
from seqattn.data.length_bands import Ints, bands, cut, in_line, sizes_of
from seqattn.errors import UserError


@checked
@dataclass(frozen=True)
class BatchLimits:
    """How large a batch may be, and who prepares it.

    Args:
        max_tokens: bound on rows x the longest row of either side, marks and padding counted.
        max_rows: bound on rows; None for none.
        max_square: bound on rows x (longest row of either side) squared, which is what attention
            weights take in memory; None for none.
        step_batches: batches of an optimizer step over all ranks, whose number divides it; None
            for as many as the ranks accumulate together.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, of use with a GPU only.
    """

    max_tokens: Count = 4096
    max_rows: Count | None = None
    max_square: Count | None = None
    step_batches: Count | None = None
    num_workers: Annotated[int, Ge(0), Le(256)] = 0
    pin_memory: bool = False

    def rows(self, length: int) -> int:
        """How many rows of `length` tokens fit, 0 if not even one does."""
        most = self.max_tokens // length
        if self.max_rows is not None:
            most = min(most, self.max_rows)
        if self.max_square is not None:
            most = min(most, self.max_square // length**2)
        return most

    def check_holds(self, length: int, what: str, advice: str = "") -> None:
        """Refuses limits that do not hold a row of `length` tokens, which is `what`."""
        if self.rows(length) < 1:
            raise UserError(
                f"max_tokens and max_square must hold {what}, "
                f"got {self.max_tokens} and {self.max_square}{advice}"
            )


class BucketSampler(Sampler[list[int]]):
    """A `DataLoader`'s batches: lists of row numbers, on this rank, in this epoch.

    Rows are grouped into bands by their longer side, laid out from the longest to the shortest; in
    a band they stand by how much longer one side is, to and fro like a snake, so that neighbours
    are alike; and batches are cut from that line, each as large as the limits let it be for the
    longest row of the bands it meets. An epoch blurs the differences, so that rows meet others,
    while all epochs have batches of the same sizes; no row comes twice and none is left out.

    An epoch is a whole number of optimizer steps of `step_batches` batches each (the fullest are
    halved for it; where all have one row, those beyond wait for another epoch). Of a step's batches
    rank r takes every `world`-th from the r-th on, so that the number of ranks changes no step. The
    order depends on the seed and the epoch alone. Epoch 0 begins with the longest rows, so that
    what does not fit into memory fails at once.

    Args:
        source_lengths: (N,) tokens of each source, its end mark counted.
        target_lengths: (N,) tokens of each target, its end mark counted.
        limits: what a batch may hold.
        seed: of the order; any integer from 0.
        rank: this process, from 0.
        world: processes in all.
        shuffle: False gives the same batches in the same order always, the longest first, and all
            of them, so that one rank may have a batch more than another.
        step_batches: batches of an optimizer step, a multiple of `world`; None for `world`.

    Attributes:
        epoch: the epoch whose batches come next.
        sampler: who is told the trainer's epoch; a loader puts itself here, None until then.
        start_batch: batches that the next iteration leaves out at the start, then 0 again; to
            go on in the midst of an epoch.

    Raises:
        UserError: fewer rows than a step has batches, a number of ranks that does not divide
            them, or a row that alone exceeds the limits.
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
    ) -> None:
        self.step_batches = step_batches or world
        _check_step(self.step_batches, world, len(source_lengths))
        longer = np.maximum(source_lengths, target_lengths)
        longest = int(longer.max())
        advice = "; raise them or lower max_length"
        limits.check_holds(longest, f"the longest row ({longest} tokens)", advice)
        self.band = bands(longer)
        self.difference = np.subtract(source_lengths, target_lengths)
        sizes, lengths = cut(*sizes_of(self.band, longer), limits)
        while len(sizes) % self.step_batches and max(sizes) > 1:
            largest = int(np.argmax(sizes))
            half = sizes[largest] // 2
            sizes[largest : largest + 1] = [sizes[largest] - half, half]
            lengths.insert(largest, lengths[largest])
        self.sizes, self.lengths = np.array(sizes), np.array(lengths)
        self.seed, self.rank, self.world, self.shuffle = seed, rank, world, shuffle
        self.epoch = 0
        self.start_batch = 0
        self.sampler: object = None

    @property
    def plan(self) -> str:
        """Names the batches of all epochs, in 16 hexadecimal digits."""
        digest = hashlib.sha256(self.sizes.tobytes() + self.band.tobytes())
        digest.update(self.difference.astype(np.int64).tobytes())
        digest.update(f"{self.seed} {self.step_batches} {self.shuffle}".encode())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        """This rank's batches in a whole epoch."""
        return len(range(self.rank, self._count, self.world))

    @property
    def on_every_rank(self) -> int:
        """Batches of an epoch that each rank has at least."""
        return self._count // self.world

    @property
    def _count(self) -> int:
        """Batches of an epoch, on all ranks."""
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
        """Chooses the epoch; another than the present one begins at its start."""
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
            f"the ranks ({world}) must divide the batches of a step, loader.step_batches, "
            f"got {batches}"
        )
    if rows < batches:
        raise UserError(
            f"a step of {batches} batches needs a row for each at least, got {rows}; lower "
            "loader.step_batches, trainer.devices or trainer.accumulate_grad_batches"
        )
