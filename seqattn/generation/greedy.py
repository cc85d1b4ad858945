"""Greedy search: the likeliest token at every step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from seqattn.generation.base import (
    Hypothesis,
    LengthLimit,
    Processors,
    Search,
    SearchMemory,
    SearchModel,
)
from seqattn.generation.stepper import Stepper, extend
from seqattn.ops.topk import largest


@dataclass(frozen=True)
class GreedySearch(Search):
    """Takes the likeliest token until the end, or until the limit.

    Args:
        limit: how long a hypothesis may be.
        processors: of what a hypothesis may say next.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    processors: Processors = ()

    def search(
        self, model: SearchModel, memory: SearchMemory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        def likeliest(scores: Tensor, held: Tensor, step: int) -> tuple[Tensor, Tensor]:
            return largest(scores, scores.new_zeros(len(scores), 1), 1)

        most = self.limit.of(memory, model.max_target_length)
        stepper = Stepper(model, memory, 1, self.limit, self.processors)
        return extend(stepper, most, 1, likeliest)
