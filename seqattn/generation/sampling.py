"""Sampling: tokens drawn from the model's distribution, sharpened and cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqattn.errors import UserError
from seqattn.generation.asking import Asker
from seqattn.generation.base import Hypothesis, LengthLimit, Search, worth_shrinking
from seqattn.generation.greedy import finished
from seqattn.generation.processors import check_ngram, processors
from seqattn.models.base import BOS, EOS, Memory, Seq2SeqModel


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
        no_repeat_ngram: n, so that no n tokens in a row are said twice; 0 for no such ban.

    Raises:
        UserError: for a value out of its range.
    """

    limit: LengthLimit = field(default_factory=LengthLimit)
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    n_best: int = 1
    seed: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        check_ngram(self.no_repeat_ngram)
        if self.temperature <= 0:
            raise UserError(f"generation.temperature must be above 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"generation.top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k < 0 or self.n_best < 1:
            raise UserError(
                f"generation.top_k must be at least 0 and n_best at least 1, got {self.top_k} "
                f"and {self.n_best}"
            )

    def search(
        self, model: Seq2SeqModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        most = self.limit.of(memory, model.max_target_length)
        longest, device = int(most.max()), memory.ids.device
        beams, count = self.n_best, memory.ids.shape[0]
        draws = self._draws(numbers, longest).to(device)  # (B, K, longest)
        tokens = torch.full((count, beams, longest), EOS, device=device)
        totals = torch.zeros(count, beams, device=device)
        held = torch.arange(count, device=device)  # sentences still held
        done = torch.zeros(count, beams, dtype=torch.bool, device=device)
        ids = torch.full((count, beams), BOS, device=device)
        made = processors(self.limit.minimum, self.no_repeat_ngram)
        asker = Asker(model, memory, beams, made)
        for step in range(longest):
            scores = asker.next(ids).flatten(0, 1)
            ids, log_probability = self._draw(scores, draws[held, :, step].flatten())
            ids = ids.view_as(done).masked_fill(done, EOS)
            totals[held] += log_probability.view_as(done).masked_fill(done, 0.0)
            tokens[held, :, step] = ids
            done = done | (ids == EOS) | (step + 1 >= most[held, None])
            going = (~done).any(dim=1).nonzero()[:, 0]
            if len(going) == 0:
                break
            if worth_shrinking(len(going), len(held)):
                asker.keep(going)
                held, ids, done = held[going], ids[going], done[going]
        return [
            _distinct([finished(row, most_tokens, total) for row, total in zip(rows, sums)])
            for rows, most_tokens, sums in zip(
                tokens.tolist(), most.tolist(), totals.tolist(), strict=True
            )
        ]

    def _draws(self, numbers: Sequence[int], steps: int) -> Tensor:
        """Uniform numbers (B, K, steps) in [0, 1); more steps leave the first ones as they are."""
        drawn = []
        for number in numbers:
            source = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
            drawn.append(torch.rand(steps, self.n_best, generator=source).T)
        return torch.stack(drawn)

    def _draw(self, scores: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """One token a row (R,) by inversion, and its log-probability under the whole model."""
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
        return order.gather(1, place)[:, 0], ordered.gather(1, place)[:, 0]


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    best = {hypothesis.ids: hypothesis for hypothesis in hypotheses}
    return sorted(best.values(), key=lambda hypothesis: -hypothesis.score)
