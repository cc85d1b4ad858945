"""Sampling: tokens drawn from the model's distribution, sharpened and cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from seqattn.checking import CountOrNone, Positive, checked
from seqattn.generation.base import (
    Hypothesis,
    LengthLimit,
    Processors,
    Search,
    SearchMemory,
    SearchModel,
)
from seqattn.generation.stepper import Stepper, extend


@checked
@dataclass(frozen=True)
class Sampling(Search):
    """Draws each token at random, reproducibly, whatever else stands in the batch.

    Every source draws its own random numbers from the seed and its place in the input. With
    several samples a source's equal ones are given once, so there may be fewer than asked for.

    Args:
        limit: how long a hypothesis may be.
        temperature: logits are divided by it; above 0.
        top_k: only the k likeliest tokens (Fan et al. 2018, arXiv 1805.04833); 0 for all.
        top_p: only the likeliest tokens that together reach this probability (Holtzman et al.
            2020, arXiv 1904.09751); 1 for all.
        n_best: samples of each source.
        seed: whole number.
        processors: of what a hypothesis may say next.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    temperature: Positive = 1.0
    top_k: CountOrNone = 0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    n_best: Annotated[int, Ge(1), Le(1_000)] = 1
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 0
    processors: Processors = ()

    def search(
        self, model: SearchModel, memory: SearchMemory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        most = self.limit.of(memory, model.max_target_length)
        uniform = self._uniform(numbers, int(most.max())).to(most.device)  # (B, K, longest)

        def draw(scores: Tensor, held: Tensor, step: int) -> tuple[Tensor, Tensor]:
            drawn = self._draw(scores.flatten(0, 1), uniform[held, :, step].flatten())
            return drawn[0].view(scores.shape[:2]), drawn[1].view(scores.shape[:2])

        stepper = Stepper(model, memory, self.n_best, self.limit, self.processors)
        return [_distinct(found) for found in extend(stepper, most, self.n_best, draw)]

    def _uniform(self, numbers: Sequence[int], steps: int) -> Tensor:
        """Uniform numbers (B, K, steps) in [0, 1); more steps leave the first ones as they are."""
        drawn = []
        for number in numbers:
            source = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
            drawn.append(torch.rand(steps, self.n_best, generator=source).T)
        return torch.stack(drawn)

    def _draw(self, scores: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """One token a row (R,) by inversion, after its log-probability under the whole model."""
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        probabilities = (ordered / self.temperature).softmax(dim=-1)
        if self.top_k:
            probabilities[:, self.top_k :] = 0
        if self.top_p < 1:
            before = probabilities.cumsum(dim=-1) - probabilities
            probabilities = probabilities.masked_fill(
                before >= self.top_p * probabilities.sum(dim=-1, keepdim=True), 0
            )
        reached = probabilities.cumsum(dim=-1)
        threshold = uniform[:, None] * reached[:, -1:]
        place = torch.searchsorted(reached, threshold, right=True)
        last = (probabilities > 0).sum(dim=-1, keepdim=True) - 1  # rounding may step past it
        place = place.minimum(last)
        return ordered.gather(1, place)[:, 0], order.gather(1, place)[:, 0]


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    best = {hypothesis.ids: hypothesis for hypothesis in hypotheses}
    return sorted(best.values(), key=lambda hypothesis: -hypothesis.score)
