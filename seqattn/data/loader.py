"""Loading rows in batches, resumable from a checkpoint."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
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
    """A split as rows of ids, with long texts in pieces.

    Attributes:
        rows: (N,) the number of each row in the split, repeated for each of its windows.
        starts: (N,) the first token read of each source.
        source_lengths: (N,) number of tokens read of it.
        target_lengths: (N,) tokens of each target, the end mark included.
        epoch: the epoch of the batches.
    """

    epoch: int = 0

    rows: Ints
    starts: Ints
    source_lengths: Ints
    target_lengths: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> BatchT:
        """Return a batch of some rows. Args: indices: B numbers from 0 to N - 1."""

    def sampler(self, limits: BatchLimits, **order: Any) -> Any:
        """Return the batch sampler. Args: order: keyword arguments of `BucketSampler`."""
        return BucketSampler(self.source_lengths, self.target_lengths, limits, **order)

    @abstractmethod
    def summary(self, split: str) -> str:
        """Return a line about what was left out of a split, and what was cut."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """Return advice for a split that has no rows left."""

    def facts(self, steps: int) -> dict[str, str]:
        """Return rows of the final table about the reading of a run of so many steps."""
        return {}


class BatchLoader(DataLoader[BatchT]):
    """Loader of the batches of a `BucketSampler`, resumable at any step of any epoch.

    Args:
        order: seed, rank, world, shuffle and step_batches of the `BucketSampler`.
    """

    def __init__(self, data: TokenRows[BatchT], limits: BatchLimits, **order: Any) -> None:
        batches = data.sampler(limits, **order)
        super().__init__(
            range(len(data)),  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=data.batch if limits.rounded(1) == 1 else partial(_rounded, data, limits),
            num_workers=limits.num_workers,
            pin_memory=bool(limits.pin_memory),
            # a separate generator: creating an iterator draws from it, and must not affect dropout
            generator=torch.Generator(),
            worker_init_fn=_leave_signals,
        )
        self.batches, self.data = batches, data
        self._position = 0
        """Number of batches of the epoch that this rank has yielded or skipped."""
        # Lightning sets the epoch on `loader.batch_sampler.sampler`.
        batches.sampler = self

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        """Yield the epoch's batches from the sampler's start on."""
        # A generator: Lightning creates the iterator before it sets the epoch, and workers would
        # start on the wrong one.
        self.data.epoch = self.batches.epoch  # before workers copy it
        self._position = self.batches.start_batch
        for batch in super().__iter__():
            self._position += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one begins at its start."""
        self.batches.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the optimizer steps taken in it, and the digest of the plan.

        All are independent of the number of ranks; Lightning's checkpoints store them.
        """
        steps = -(-self._position * self.batches.world // self.batches.step_batches)
        over = self._position >= len(self.batches)
        plan = self.batches.plan
        return {"epoch": self.batches.epoch, "step": steps, "over": over, "plan": plan}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Start the next iteration at the point where `state_dict` was called.

        Raises:
            UserError: if, within an epoch, its batches have changed with data, limits or seed.
        """
        step, plan = state_dict["step"], self.batches.plan
        if step and not state_dict["over"] and state_dict["plan"] != plan:
            raise UserError(
                f"cannot resume after step {step:,} of the epoch: the data, batch limits, seed or "
                "batches per step have changed; restore them, or start a new run from its weights "
                "with init_from"
            )
        self.batches.set_epoch(state_dict["epoch"])
        self._position = step * self.batches.step_batches // self.batches.world
        self.batches.start_batch = self._position


class StepLoader(BatchLoader[BatchT]):
    """Loader of optimizer steps: each item is the list of this rank's batches of one."""

    def __len__(self) -> int:
        return -(-super().__len__() // self._rank_batches)

    def __iter__(self) -> Iterator[list[BatchT]]:  # type: ignore[override]
        batches = super().__iter__()
        while step := [*islice(batches, self._rank_batches)]:
            yield step

    @property
    def _rank_batches(self) -> int:
        return self.batches.step_batches // self.batches.world


def _rounded(data: TokenRows[Any], limits: BatchLimits, indices: Sequence[int]) -> Any:
    return data.batch(indices).rounded(limits)


def _leave_signals(worker: int) -> None:
    """Ignore signals in a worker, which the training process handles.

    A signal to a whole job reaches workers, too, but the last step still needs them.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
