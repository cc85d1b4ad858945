"""What each attention costs over a range of lengths: time, memory, cache, parameters, FLOPs.

How it is measured. All contestants take turns in one process, length by length and round by round,
beside PyTorch's `scaled_dot_product_attention` on the same inputs, and times are compared within a
round. Memory is the most that lived at once beside the inputs: of all tensors that the operators
made on a CPU (their own workspaces are not seen), of the allocator on a GPU.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqattn.attention.masks import Mask
from seqattn.benchmarks.contestants import Contestant
from seqattn.benchmarks.live import peak_bytes
from seqattn.benchmarks.measure import Spread, timed
from seqattn.benchmarks.subjects import Inputs, Subject, draw, plain
from seqattn.errors import UserError


@dataclass(frozen=True)
class AttentionPlan:
    """What to measure.

    Args:
        contestants: all of them.
        lengths: in tokens, rising.
        causal: as a decoder uses it; bidirectional otherwise. What cannot be so is left out.
        dim: width D.
        batch_size: B.
        projections: with the projections from and to D, or the kernel alone.
        backward: forward and backward, or forward alone.
        dtype: of inputs and parameters.
        device: where it runs.
        rounds: that count; one more warms up.
        memory_limit: bytes; a length at which a contestant would need more is left out.

    Raises:
        UserError: for a number below 1.
    """

    contestants: tuple[Contestant, ...]
    lengths: tuple[int, ...]
    causal: bool = False
    dim: int = 512
    num_heads: int = 8
    batch_size: int = 1
    projections: bool = False
    backward: bool = True
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    rounds: int = 3
    memory_limit: float = 6e9

    def __post_init__(self) -> None:
        if min(*self.lengths, self.rounds, self.batch_size, self.dim) < 1:
            raise UserError("lengths, rounds, batch_size and dim must be at least 1")


class Cost(NamedTuple):
    """What one contestant costs at one length."""

    name: str
    length: int
    seconds: Spread
    speed: Spread
    """Times as fast as `scaled_dot_product_attention`, of the same round."""
    bytes: int
    """The most that lived at once, beside inputs and parameters."""
    parameters: int
    flops: int
    """Multiplications and additions of matrix products, as PyTorch counts them."""
    cache_bytes: int | None
    """Of the cache after so many tokens; None for what does not decode."""


BASELINE = "sdpa"


def measure_attention(plan: AttentionPlan) -> list[Cost]:
    """Runs the contest, length by length.

    Raises:
        UserError: where no contestant can run as asked.
    """
    costs: list[Cost] = []
    latest: dict[str, Cost] = {}
    for length in plan.lengths:
        inputs = draw(plan.batch_size, length, plan.dim, plan.num_heads, plan.dtype, plan.device)
        subjects = [plain(plan.dim, plan.num_heads, plan.projections, inputs, plan.causal)]
        for contestant in plan.contestants:
            before = latest.get(contestant.name)
            if before and before.bytes * (length / before.length) ** 2 > plan.memory_limit:
                continue
            subject = _subject(plan, contestant, inputs)
            if subject is not None:
                subjects.append(subject)
        if len(subjects) == 1 and not latest:
            raise UserError("no attention of those asked for can run so; see causal and attentions")
        for cost in _measured(plan, subjects, length):
            latest[cost.name] = cost
            costs.append(cost)
    return costs


def _subject(plan: AttentionPlan, contestant: Contestant, inputs: Inputs) -> Subject | None:
    torch.manual_seed(0)
    attention, position = contestant.make(inputs.length)
    if not attention.abilities.fits("decoder" if plan.causal else "encoder"):
        return None
    attention.to(plan.device, plan.dtype)
    position.to(plan.device, plan.dtype)
    places = torch.arange(inputs.length, device=plan.device)
    mask = Mask(places, places, causal=plan.causal)
    kernel = None if plan.projections else getattr(attention, "kernel", None)

    def run() -> Tensor:
        if kernel is None:
            return attention(inputs.x, attention.project(inputs.x), mask, position)
        query = inputs.k if attention.abilities.shared else inputs.q
        out: Tensor = kernel(query, inputs.pair(attention), mask, position)
        return out

    module = nn.ModuleList([kernel or attention, position])
    return Subject(contestant.name, run, module, inputs, attention)


def _measured(plan: AttentionPlan, subjects: Sequence[Subject], length: int) -> list[Cost]:
    memory, flops = {}, {}
    for subject in subjects:  # warms up, too
        memory[subject.name] = peak_bytes(partial(subject.work, plan.backward), plan.device)
        with FlopCounterMode(display=False, custom_mapping=_CPU_FLOPS) as counter:
            subject.work(plan.backward)
        flops[subject.name] = counter.get_total_flops()
    seconds: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    for number in range(plan.rounds):
        for subject in subjects[:: 1 if number % 2 else -1]:
            sample = timed(partial(subject.work, plan.backward))
            seconds[subject.name].append(sample.seconds)
    base = seconds[BASELINE]
    return [
        Cost(
            subject.name,
            length,
            Spread.of(seconds[subject.name]),
            Spread.of([b / s for b, s in zip(base, seconds[subject.name], strict=True)]),
            memory[subject.name],
            sum(p.numel() for p in subject.module.parameters()),
            flops[subject.name],
            subject.cache_bytes(length, plan.dim, plan.dtype, plan.device) if plan.causal else None,
        )
        for subject in subjects
    ]


def exponent(costs: Sequence[Cost], name: str, shortest: int = 4096) -> float | None:
    """k of the fit time ~ n^k over lengths from `shortest` up; None for fewer than two."""
    points = [
        (math.log(cost.length), math.log(cost.seconds.median))
        for cost in costs
        if cost.name == name and cost.length >= shortest
    ]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _attention_flops(query: torch.Size, key: torch.Size, *args: object, **more: object) -> int:
    batch, heads, length, width = query
    return 4 * batch * heads * length * key[-2] * width


def _attention_backward_flops(
    grad: torch.Size, query: torch.Size, key: torch.Size, *args: object, **more: object
) -> int:
    return _attention_flops(query, key) * 5 // 2


_CPU_FLOPS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}
