"""Settings of checkpoints and early stopping."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from seqattn.checking import Count
from seqattn.roles import Role


@dataclass(frozen=True)
class CheckpointOptions:
    """Settings of checkpoints, weight averaging and early stopping.

    Args:
        monitor: metric of the best weights and of early stopping, such as val/loss or val/bleu.
        average: which validated weights the bundle averages: best or last.
        count: number of weights to average.
        every_steps: optimizer steps between checkpoints; None for validations only.
        every_minutes: minutes between checkpoints, so that little of a long epoch is lost.
        patience: validations without improvement before training stops; None to never stop early.
    """

    monitor: str = "val/loss"
    average: Literal["best", "last"] = "best"
    count: Annotated[int, Ge(1), Le(1000)] = 1
    every_steps: Annotated[Count | None, Role.NOTE] = None
    every_minutes: Annotated[Annotated[float, Gt(0), Le(10**6)] | None, Role.NOTE] = 10.0
    patience: Count | None = None
