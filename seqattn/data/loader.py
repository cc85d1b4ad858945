"""Rows that are fetched a batch at a time, by a loader that goes on where a checkpoint left it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from seqattn.data.bucketing import BatchLimits, BucketSampler
from seqattn.errors import UserError

BatchT = TypeVar("BatchT")
Ints = npt.NDArray[np.int64]


class TokenRows(ABC, Generic[BatchT]):
    """A split as rows of ids, its long texts in pieces.

    Attributes:
        rows: (N,) the number that each has in the split; one read in windows comes as often.
        starts: (N,) the first token that is read of each source, or context.
        source_lengths: (N,) tokens of it that are read.
        target_lengths: (N,) tokens of each target, or question, the end mark counted.
        epoch: whose batches are made.
    """

    epoch: int = 0

    rows: Ints
    starts: Ints
    source_lengths: Ints
    target_lengths: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @abstractmethod
    def batch(self, places: Sequence[int]) -> BatchT:
        """A batch of some rows. Args: places: B numbers from 0 to N - 1."""

    @abstractmethod
    def account(self, split: str) -> str:
        """Says in a line what of a split was left out, and what was cut."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """What would keep rows, of a split that keeps none."""


class BatchLoader(DataLoader[BatchT]):
    """Loads the batches that a `BucketSampler` plans, and can say and restore how far it is.

    Lightning puts `state_dict()` into each checkpoint and hands it back on resuming, so that an
    epoch goes on with exactly the batches that had not been seen. A batch counts as seen once it
    has been handed out, not when a worker has prepared it.

    Args:
        data: the rows.
        limits: what a batch may hold, and who prepares it.
        order: seed, rank, world and shuffle of the `BucketSampler`.
    """

    def __init__(self, data: TokenRows[BatchT], limits: BatchLimits, **order: Any) -> None:
        batches = BucketSampler(data.source_lengths, data.target_lengths, limits, **order)
        super().__init__(
            range(len(data)),  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=data.batch,
            num_workers=limits.num_workers,
            pin_memory=limits.pin_memory,
            # a generator of its own: making an iterator draws from it, and dropout must not notice
            generator=torch.Generator(),
        )
        self.batches, self.data = batches, data
        # Lightning sets the epoch on `loader.batch_sampler.sampler`.
        batches.sampler = self
        self._seen = (0, 0)  # an epoch, and its batches that have been handed out
        self._told: int | None = None  # the epoch that the trainer last said

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        """The epoch's batches from where the sampler starts."""
        # A generator: Lightning makes the iterator before it sets the epoch, and workers would
        # begin to prepare the wrong one at once.
        epoch, seen = self.batches.epoch, self.batches.start_batch
        self._seen = (epoch, seen)
        self.data.epoch = epoch  # before workers copy it
        for batch in super().__iter__():
            seen += 1
            self._seen = (epoch, seen)
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Hears the trainer's epoch, and begins the next one if something of this has been seen.

        Where a run bounded by steps resumes at an epoch's end, Lightning counts an epoch without
        a batch in it; to follow its number would leave one epoch's order out. A new loader takes
        the number as it is.
        """
        if self._told is None:
            self.batches.set_epoch(epoch)
        elif epoch != self._told and self._position() > 0:
            self.batches.set_epoch(self.batches.epoch + 1)
        self._told = epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch, how many of its batches have been seen, and what batches they are."""
        position = {"epoch": self.batches.epoch, "batch": self._position()}
        return {**position, "told": self._told, "plan": self.batches.plan}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where `state_dict` was taken.

        Raises:
            UserError: the state stands within an epoch whose batches are others: other data,
                limits, seed or number of ranks.
        """
        within = 0 < state["batch"] < len(self.batches)
        if within and state["plan"] != self.batches.plan:
            raise UserError(
                f"resuming after batch {state['batch']:,} of an epoch must find the same data, "
                "batch limits, seed and number of devices as before, they have changed; restore "
                "them, or resume from a checkpoint at an epoch's end"
            )
        self.batches.set_epoch(state["epoch"])
        self.batches.start_batch = state["batch"]
        self._seen = (state["epoch"], state["batch"])
        self._told = state["told"]

    def _position(self) -> int:
        epoch, seen = self._seen
        # In an epoch of which nothing has been loaded, `_seen` still speaks of another.
        return seen if epoch == self.batches.epoch else self.batches.start_batch
