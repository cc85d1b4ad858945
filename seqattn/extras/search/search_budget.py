"""Budget of a search: minutes, steps and finalists."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

from seqattn.errors import UserError


@dataclass(frozen=True)
class Budget:
    """Limits of a search.

    Args:
        minutes: time for the whole search.
        candidates: maximum number of models to try; None for as many as the minutes allow.
        first_steps: optimizer steps from one validation to the next, and to the first halving.
        steps: optimizer steps of a full training.
        factor: factor of steps between halvings; one in `factor` models continues.
        finalists: models that are trained to the end.
        seeds: number of trainings of each finalist.

    Raises:
        UserError: if the steps are too few for a halving.
    """

    minutes: Annotated[float, Gt(0), Le(10**6)] = 30.0
    candidates: Annotated[int, Ge(2), Le(1000)] | None = None
    first_steps: Annotated[int, Ge(1), Le(10**9)] = 100
    steps: Annotated[int, Ge(2), Le(10**9)] = 900
    factor: Annotated[int, Ge(2), Le(10)] = 3
    finalists: Annotated[int, Ge(2), Le(100)] = 3
    seeds: Annotated[int, Ge(1), Le(100)] = 2

    def __post_init__(self) -> None:
        if self.steps % self.first_steps or self.steps == self.first_steps:
            raise UserError(
                "budget.steps must be a multiple of budget.first_steps, and at least twice as "
                f"large, got {self.steps} and {self.first_steps}"
            )
