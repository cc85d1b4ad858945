"""What a search may take, and how it is shared out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from annotated_types import Ge, Gt, Le, MinLen

from seqattn.checking import Count, checked
from seqattn.errors import UserError


@checked
@dataclass(frozen=True)
class Budget:
    """What a search may take, and how it is shared out.

    Args:
        minutes: all of it.
        candidates: models that are tried; None for as many as the minutes allow.
        first_steps: the fewest steps after which models are compared.
        steps: at which they are compared, given to repeat a search; None for those that the
            minutes allow.
        factor: by which steps grow from one comparison to the next.
        finalists: models that are trained to the end.
        seeds: trainings of each finalist.

    Raises:
        UserError: for steps that do not rise.
    """

    minutes: Annotated[float, Gt(0), Le(10**6)] = 30.0
    candidates: Annotated[int, Ge(2), Le(1000)] | None = None
    first_steps: Annotated[int, Ge(20), Le(10**9)] = 100
    steps: Annotated[list[Count], MinLen(1)] | None = None
    factor: Annotated[int, Ge(2), Le(10)] = 3
    finalists: Annotated[int, Ge(2), Le(100)] = 3
    seeds: Annotated[int, Ge(1), Le(100)] = 2

    def __post_init__(self) -> None:
        if self.steps is not None and sorted(set(self.steps)) != self.steps:
            raise UserError(f"budget.steps must rise, got {self.steps}")

    def counts(self, candidates: int) -> list[int]:
        """How many models there are in each rung, those of the last without their seeds."""
        last = min(self.finalists, candidates)
        rungs = 1 + math.ceil(math.log(candidates / last, self.factor) - 0.5)
        rungs = max(rungs, 1 + (candidates > last))
        rungs = len(self.steps) if self.steps else rungs
        shares = [number / max(1, rungs - 1) for number in range(rungs)]
        return [round(candidates * (last / candidates) ** share) for share in shares]

    def plan(self, candidates: int, step: float, start: float, seconds: float) -> list[int]:
        """Steps at the end of each rung that use up some seconds.

        Args:
            candidates: models of the first rung.
            step: seconds that a step takes.
            start: seconds that a process takes beside its steps.
            seconds: of all cores together.
        """
        counts = self.counts(candidates)
        growth = [self.factor**number for number in range(len(counts))]
        starts, units = self.work(counts, [0, *growth])
        first = (seconds - start * starts) / (step * units)
        return [int(first * one) for one in growth]

    def work(self, counts: Sequence[int], ends: Sequence[int]) -> tuple[int, int]:
        """Processes and steps of rungs. Args: ends: the step before the first rung, and of each."""
        fresh = counts[-1] * (self.seeds - 1)
        more = sum(n * (b - a) for n, (a, b) in zip(counts, pairwise(ends), strict=True))
        return sum(counts) + fresh, more + fresh * ends[-1]
