"""What a task is told: how its weights move, and what is made and scored beside the loss."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch.optim import Optimizer

from seqattn.checking import CountOrNone, Dropout, NotNegative
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import Schedule


@dataclass(frozen=True)
class Optimization:
    """How weights move.

    Args:
        optimizer: makes the optimizer from (model, fused).
        schedule: factor on the learning rate, by optimizer step.
        label_smoothing: share of a target's probability spread over the vocabulary, from 0 up to
            but not 1.
        teacher_forcing: share of target tokens that are given, by optimizer step.
        r_drop: alpha of R-Drop (Liang et al. 2021, arXiv 2106.14448): every batch is read twice,
            with dropout of its own each time, and the loss of a unit is the mean of both
            cross-entropies + alpha/2 times the mean of KL(P1 || P2) and KL(P2 || P1), which is half
            of eq. 4; the paper's is 5 for translation. 0 for reading once.
        seed: of all that is drawn while training, dropout for one: each batch's draws depend on
            the seed, the epoch, its step and its number in the step, and on nothing else.
    """

    optimizer: Callable[..., Optimizer]
    schedule: Schedule
    label_smoothing: Dropout = 0.0
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)
    r_drop: NotNegative = 0.0
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
