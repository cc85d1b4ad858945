"""Settings of tasks: optimization and validation."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer

from seqattn.checking import CountOrNone
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.forcing import TeacherForcing
from seqattn.training.parameter_groups import ParameterGroups
from seqattn.training.schedules import Schedule


@dataclass(frozen=True)
class Optimization:
    """Settings of the optimization and the loss.

    Args:
        optimizer: builds the optimizer from (model, fused).
        schedule: factor on the learning rate, by optimizer step.
        teacher_forcing: share of target tokens that the decoder reads, by optimizer step.
        seed: seed of random numbers, such as dropout: those of a training batch depend only on the
            seed, the epoch, its step and its number in the step.
        parameter_groups: parts of the model that are frozen, or have rates of their own.
        terms: terms of the loss.
        clip: largest norm of the gradient; None or 0 for none.
    """

    optimizer: Callable[..., Optimizer]
    schedule: Schedule
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)
    seed: int = 0
    parameter_groups: ParameterGroups = field(default_factory=ParameterGroups)
    terms: LossTerms = field(default_factory=LossTerms)
    clip: float | None = None

    def make_optimizer(self, model: nn.Module, fused: bool) -> Optimizer:
        """Build the optimizer of a model, with its rates by part."""
        return self.parameter_groups.split(model, self.optimizer(model, fused=fused))


class Sample(NamedTuple):
    """Row number in the validation split, output of the model, and references."""

    row: int
    hypothesis: str
    references: Sequence[str]


Choose = Callable[[Sequence[int]], list[int]]
"""Function that returns those of some rows whose outputs are needed."""


@dataclass(frozen=True)
class Validation:
    """Generation and scoring of outputs in validation.

    Args:
        outputs: returns rows of a batch of the split, among those chosen, each with its output.
        scorer: compares outputs with their references; its scores are logged as `val/NAME`.
        references: returns the references of all rows of the split.
        every: epochs between scorings; 0 for never.
        limit: number of first rows of the split to use; 0 for all.
    """

    outputs: Callable[[Any, Choose], Iterable[tuple[int, str]]]
    scorer: Any
    references: Callable[[], Sequence[Sequence[str]]]
    every: CountOrNone = 1
    limit: CountOrNone = 0

    def chosen(self, rows: Sequence[int]) -> list[int]:
        """Return those of `rows` that are within the limit."""
        return [row for row in rows if not self.limit or row < self.limit]

    def samples(self, batch: Any) -> list[Sample]:
        """Return outputs for a batch of the validation split."""
        references = self.references()
        return [
            Sample(row, text, references[row]) for row, text in self.outputs(batch, self.chosen)
        ]

    def metric(self) -> Any:
        """Return a torchmetric with `update(hypotheses, references)` and named scores."""
        return self.scorer.corpus()


def draw_seed(*numbers: int) -> int:
    """Return a seed of 63 bits, a hash of numbers such as the run's seed, an epoch and a step."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
