"""Greedy search and sampling, which extend each hypothesis independently."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from seqattn import ops
from seqattn.checking import CountOrNone, Positive, Seed
from seqattn.generation.base import Hypothesis, Search, SearchModel
from seqattn.generation.running import Running
from seqattn.generation.stepper import Stepper
from seqattn.models.base import Memory
from seqattn.ops.gpu import running_sums
from seqattn.ops.memory import to_device
from seqattn.ops.topk import largest
from seqattn.roles import Role
from seqattn.tokens import EOS

_COLDEST = 1e-30  # minimum temperature: below it all logits may overflow
_TOP = 128  # number of tokens that most nuclei fit in


@dataclass(frozen=True)
class GreedySearch(Search):
    """Search that takes the most probable token at each step. Args: as in `Search`."""

    batch_size: Annotated[CountOrNone, Role.NOTE] = field(default=256, kw_only=True)

    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        max_length = self.limit.of(memory.real.sum(dim=1), model.max_target_length)
        return extend(Stepper(self, model, memory, 1), max_length)

    def choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and tokens (B, 1) of the largest scores (B, 1, V)."""
        return largest(scores, scores.new_zeros(len(scores), 1), 1)

    @property
    def captured_as(self) -> Hashable:
        return "greedy"


@dataclass(frozen=True)
class Sampling(Search):
    """Reproducible random sampling, independent of the rest of the batch.

    Every source gets its own random numbers from the seed and its index in the input. Equal samples
    of a source are returned once, so there may be fewer than requested.

    Args:
        limit, processors: as in `Search`.
        temperature: divisor of the logits, above 0.
        top_k: draw from the k most probable tokens (Fan et al. 2018, arXiv 1805.04833); 0 for all.
        top_p: draw from the most probable tokens that together reach this probability (Holtzman et
            al. 2020, arXiv 1904.09751); 1 for all.
        n_best: samples for each source.
        seed: random seed.
    """

    temperature: Positive = 1.0
    top_k: CountOrNone = 0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    n_best: Annotated[int, Ge(1), Le(1_000)] = 1
    seed: Seed = 0

    @property
    def beams(self) -> int:
        return self.n_best

    def search(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        return [_distinct(samples) for samples in self.draw(model, memory, numbers, self.n_best)]

    def draw(
        self, model: SearchModel, memory: Memory, numbers: Sequence[int], count: int
    ) -> list[list[Hypothesis]]:
        """Draw `count` samples of each sentence, possibly with duplicates. Args: as in `search`."""
        max_length = self.limit.of(memory.real.sum(dim=1), model.max_target_length)
        uniform = self._uniform(numbers, int(max_length.max()), count, max_length.device)
        return extend(Stepper(self, model, memory, count), max_length, uniform)

    def choose(self, scores: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Draw from scores (B, K, V) by numbers (B, K); return log-probabilities and tokens."""
        scored, tokens = self._draw(scores.flatten(0, 1), uniform.flatten())
        return scored.view(uniform.shape), tokens.view(uniform.shape)

    @property
    def captured_as(self) -> Hashable | None:
        if torch.are_deterministic_algorithms_enabled():
            return None  # sums are on the CPU then
        return "sampling", self.temperature, self.top_k, self.top_p

    def _uniform(
        self, numbers: Sequence[int], steps: int, count: int, device: torch.device
    ) -> Tensor:
        """Return uniform numbers (B, K, steps) in [0, 1); prefixes do not depend on `steps`."""
        rows, source = [], torch.Generator()
        for number in numbers:
            source.manual_seed(self.seed * 1_000_003 + number)
            rows.append(torch.rand(steps, count, generator=source).T)
        return to_device(torch.stack(rows), device)

    def _draw(self, scores: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Draw one token per row (R,) by inversion; return log-probabilities and tokens."""
        order = None
        logits = scores / max(self.temperature, _COLDEST)
        if self.top_k:
            logits, order = logits.topk(min(self.top_k, scores.shape[-1]), dim=-1)
        probabilities = logits.softmax(dim=-1)
        if self.top_p < 1 and (ops.at_hand(scores) or probabilities.shape[-1] <= _TOP):
            probabilities, positions = _nucleus(probabilities, self.top_p)
            order = positions if order is None else order.gather(1, positions)
        elif self.top_p < 1:
            probabilities = _nucleus_unsorted(probabilities, self.top_p)
        reached = running_sums(probabilities)
        total = reached[:, -1:]
        below = torch.nextafter(total, torch.zeros_like(total))  # rounding could reach `total`
        threshold = (uniform[:, None] * total).minimum(below)
        position = torch.searchsorted(reached, threshold, right=True)
        tokens = position if order is None else order.gather(1, position)
        return scores.gather(1, tokens)[:, 0], tokens[:, 0]


def _nucleus(probabilities: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return the most probable tokens of each row (R, V) that reach a share; 0 for the others.

    Rows whose first few tokens reach it are not sorted. On a GPU, V is at most `_TOP`.

    Returns:
        Probabilities (R, N), the largest first, and their tokens.
    """
    ordered, order = probabilities.topk(min(_TOP, probabilities.shape[-1]), dim=-1)
    on_cpu = ops.at_hand(probabilities)  # elsewhere the first few are all
    if on_cpu and len(short := (ordered.sum(dim=-1) < share).nonzero()[:, 0]):
        top, first = ordered, order
        ordered, order = torch.zeros_like(probabilities), torch.zeros_like(probabilities).long()
        ordered[:, : top.shape[1]], order[:, : top.shape[1]] = top, first
        ordered[short], order[short] = probabilities[short].sort(
            dim=-1, descending=True, stable=True
        )
    preceding = running_sums(ordered) - ordered
    return ordered.masked_fill((preceding >= share) & (preceding > 0), 0), order


def _nucleus_unsorted(probabilities: Tensor, share: float) -> Tensor:
    """Return probabilities (R, V) with 0 for tokens outside `_nucleus`, without waiting for a GPU.

    Keeps the tokens of at least t, the largest number such that they reach the share. Unlike
    `_nucleus` it keeps all tokens tied at t. The bits of t are found one by one, from the highest:
    float32 numbers from 0 to 1 are ordered as their bits are as integers, which are below 2^30.
    """
    bits = torch.zeros(len(probabilities), 1, dtype=torch.int32, device=probabilities.device)
    for bit in reversed(range(30)):
        larger = bits + (1 << bit)
        likely = probabilities * (probabilities >= larger.view(torch.float32))
        bits = torch.where(likely.sum(dim=-1, keepdim=True) >= share, larger, bits)
    peak = probabilities.amax(dim=-1, keepdim=True)  # less than t if the share rounds to 0
    return probabilities * (probabilities >= bits.view(torch.float32).minimum(peak))


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    best = {hypothesis.ids: hypothesis for hypothesis in hypotheses}
    return sorted(best.values(), key=lambda hypothesis: -hypothesis.score)


class Extended(Running):
    """Hypotheses that are extended independently of each other.

    Args:
        search: a search whose `choose` chooses the next tokens.
        max_length, beams: as in `Running`.
        uniform: (B, K, steps) numbers in [0, 1) for it; None for none.
    """

    names = (*Running.names, "tokens", "totals")
    by_step = ("tokens", "uniform")
    outcome = ("tokens", "totals")

    def __init__(self, search: Any, max_length: Tensor, beams: int, uniform: Tensor | None) -> None:
        super().__init__(max_length, beams)
        self.search, self.uniform = search, uniform
        if uniform is not None:
            self.names = (*self.names, "uniform")
        self.active = torch.ones_like(self.ids, dtype=torch.bool)
        self.tokens = self.ids.new_full((*self.ids.shape, int(max_length.max())), EOS)
        """(B', K, steps)."""
        self.totals = torch.zeros(self.ids.shape, device=max_length.device)
        """(B', K) log-probabilities."""

    def advance(self, stepper: Any) -> None:
        scores, position = stepper.step(self.ids), stepper.position
        numbers = () if self.uniform is None else (self.uniform.index_select(2, position)[..., 0],)
        log_probability, ids = self.search.choose(scores, *numbers)
        self.ids.copy_(ids.where(self.active, EOS))
        self.totals += log_probability.where(self.active, 0.0)
        self.tokens.index_copy_(2, position, self.ids[..., None])
        self.active &= (self.ids != EOS) & (position + 1 < self.max_length[:, None])
        self.count()


def extend(
    stepper: Stepper, max_length: Tensor, uniform: Tensor | None = None
) -> list[list[Hypothesis]]:
    """Extend each hypothesis independently by chosen tokens until its end or its limit.

    Args:
        stepper: before its first step.
        max_length, uniform: as in `Extended`.

    Returns:
        K hypotheses for each sentence, scored by their mean log-probability.
    """
    results = stepper.run(Extended(stepper.search, max_length, stepper.beams, uniform))
    totals, tokens = results["totals"].tolist(), results["tokens"].tolist()
    return [
        [_finished(row[:length], total) for row, total in zip(rows, sums, strict=True)]
        for rows, length, sums in zip(tokens, max_length.tolist(), totals, strict=True)
    ]


def _finished(row: list[int], log_probability: float) -> Hypothesis:
    ids = row[: row.index(EOS)] if EOS in row else row
    length = len(ids) + (EOS in row)
    return Hypothesis(tuple(ids), log_probability / length, log_probability)
