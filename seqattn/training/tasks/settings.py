"""What a task is told: how its weights move, and what is made and scored beside the loss."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch.optim import Optimizer

from seqattn.checking import CountOrNone
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import Schedule


@dataclass(frozen=True)
class Optimization(LossTerms):
    """How weights move, and by which loss.

    Args:
        optimizer: makes the optimizer from (model, fused).
        schedule: factor on the learning rate, by optimizer step.
        teacher_forcing: share of target tokens that are given, by optimizer step.
        seed: of all that is drawn while training, dropout for one: each batch's draws depend on
            the seed, the epoch, its step and its number in the step, and on nothing else.
        label_smoothing, r_drop: as `LossTerms`.
    """

    optimizer: Callable[..., Optimizer]
    schedule: Schedule
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)
    seed: int = 0


class Sample(NamedTuple):
    """One validation row's place in its split, what the model gave, and what would be right."""

    row: int
    hypothesis: str
    references: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Validation(ABC):
    """Real outputs that are made and scored beside the loss.

    Args:
        every: epochs from one time to the next; 0 for never.
        limit: only the first so many rows of the split; 0 for all.
    """

    every: CountOrNone = 1
    limit: CountOrNone = 0

    def chosen(self, rows: Sequence[int]) -> list[int]:
        """Those of `rows` that are within the limit."""
        return [row for row in rows if not self.limit or row < self.limit]

    @abstractmethod
    def samples(self, batch: Any) -> list[Sample]:
        """The outputs for a batch of the validation split."""

    @abstractmethod
    def metric(self) -> Any:
        """A torchmetric: `update(hypotheses, references)`, and `compute` gives named scores."""


def draw_seed(*numbers: int) -> int:
    """A seed of 63 bits for the draws that some numbers name: the run's seed, an epoch, a step."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
