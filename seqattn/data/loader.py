"""Rows that are fetched a batch at a time, by a loader that goes on where a checkpoint left it."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from seqattn.data.bucketing import BucketSampler
from seqattn.data.options import BatchLimits
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

    def sampler(self, limits: BatchLimits, **order: Any) -> Any:
        """What plans the batches. Args: order: as of a `BucketSampler`, whose part it plays."""
        return BucketSampler(self.source_lengths, self.target_lengths, limits, **order)

    @abstractmethod
    def account(self, split: str) -> str:
        """Says in a line what of a split was left out, and what was cut."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """What would keep rows, of a split that keeps none."""


class BatchLoader(DataLoader[BatchT]):
    """Loads the batches that a `BucketSampler` plans, from any step of any epoch on.

    Args:
        order: seed, rank, world, shuffle and step_batches of the `BucketSampler`.
    """

    def __init__(self, data: TokenRows[BatchT], limits: BatchLimits, **order: Any) -> None:
        batches = data.sampler(limits, **order)
        super().__init__(
            range(len(data)),  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=data.batch,
            num_workers=limits.num_workers,
            pin_memory=bool(limits.pin_memory),
            # a generator of its own: making an iterator draws from it, and dropout must not notice
            generator=torch.Generator(),
            worker_init_fn=_leave_signals,
        )
        self.batches, self.data = batches, data
        self._taken = 0
        """Batches of the epoch that were given out on this rank, or left out."""
        # Lightning sets the epoch on `loader.batch_sampler.sampler`.
        batches.sampler = self

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        """The epoch's batches from where the sampler starts."""
        # A generator: Lightning makes the iterator before it sets the epoch, and workers would
        # begin to prepare the wrong one at once.
        self.data.epoch = self.batches.epoch  # before workers copy it
        self._taken = self.batches.start_batch
        for batch in super().__iter__():
            self._taken += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; another than the present one begins at its start."""
        self.batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how many of its optimizer steps were taken, and which plan they are of,
        for Lightning's checkpoints; no number depends on how many ranks there are."""
        steps = -(-self._taken * self.batches.world // self.batches.step_batches)
        over = self._taken >= len(self)
        plan = self.batches.plan
        return {"epoch": self.batches.epoch, "step": steps, "over": over, "plan": plan}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration begin where `state_dict` was taken.

        Raises:
            UserError: within an epoch whose batches are others: other data, limits or seed.
        """
        step, plan = state_dict["step"], self.batches.plan
        if step and not state_dict["over"] and state_dict["plan"] != plan:
            raise UserError(
                f"resuming after step {step:,} of an epoch must find the same data, batch limits, "
                "seed and batches of a step as before, they have changed; restore them, or begin "
                "anew with the weights by init_from"
            )
        self.batches.set_epoch(state_dict["epoch"])
        self._taken = step * self.batches.step_batches // self.batches.world
        self.batches.start_batch = self._taken


def _leave_signals(worker: int) -> None:
    """Leaves it to the process that trains to end: a signal to all of a job reaches workers, too,
    and the last step could not be made without them."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
