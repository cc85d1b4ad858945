"""What each attention costs over a range of lengths: time, memory, cache, parameters, FLOPs.

All contestants take turns in one process, length by length and round by round, beside PyTorch's
`scaled_dot_product_attention` on the same inputs, and times are compared within a round. Memory is
the most that lived at once beside the inputs. The process keeps freed memory as training does:
without it page faults grow with n, and so do times.
"""

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Le, MinLen
from torch.utils.flop_counter import FlopCounterMode

from seqattn.benchmarks.attention_work import Inputs, Work, attention_work, peak_bytes, sdpa_work
from seqattn.benchmarks.attentions import AttentionChoices
from seqattn.benchmarks.measure import Sample, ratios, take_turns, timed
from seqattn.benchmarks.suite import Figures, Row
from seqattn.checking import Count, Positive, checked
from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory

Length = Annotated[int, Ge(1), Le(10**8)]
Precision = Literal["fp32", "bf16"]
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_CPU_FLOPS = {  # PyTorch knows those of a GPU; shapes are (B, H, T or S, Dh)
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, *_, **__: 4 * query.numel() * key[2]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda gradient, query, key, *_, **__: 10 * query.numel() * key[2]
    ),
}


class Cost(NamedTuple):
    """What one contestant costs at one length: seconds, bytes at the peak, and a table's row."""

    length: int
    seconds: float
    bytes: int
    row: Row


@checked
@dataclass(frozen=True, kw_only=True)
class AttentionSuite(AttentionChoices):
    """Every attention alone, over several lengths.

    Args:
        lengths: in tokens, rising.
        causal: as a decoder uses it, or bidirectional; what cannot be so is left out.
        precisions: of inputs and parameters.
        batch_size: B.
        projections: with the projections from and to D, or the kernel alone.
        backward: forward and backward, or forward alone.
        rounds: that count; one more warms up.
        memory_limit: GB; a length at which a contestant would need more is left out.
        plots: a directory for two pictures, time and memory against n; None for none.
    """

    lengths: Annotated[Sequence[Length], MinLen(1)] = (1024, 2048, 4096, 8192)
    causal: Annotated[Sequence[bool], MinLen(1)] = (False, True)
    precisions: Annotated[Sequence[Precision], MinLen(1)] = ("fp32",)
    batch_size: Count = 1
    projections: bool = False
    backward: bool = True
    rounds: Count = 3
    memory_limit: Positive = 6.0
    plots: str | None = None

    def measure(self) -> Iterator[Figures]:
        keep_freed_memory()
        passes = "forward and backward" if self.backward else "forward"
        scope = "with projections" if self.projections else "kernels alone"
        heads = f"{self.num_heads} heads of {self.dim // self.num_heads}, batch {self.batch_size}"
        for precision, causal in product(self.precisions, self.causal):
            costs = self._contest(causal, _TYPES[precision])
            kind = str(_TYPES[precision]).removeprefix("torch.")
            title = f"{'causal' if causal else 'bidirectional'}, {kind}"
            if self.plots is not None:
                _draw(costs, title, Path(self.plots).expanduser())
            rows = [{**cost.row, "time grows as n^": exponent(found)}
                    for found in costs.values() for cost in found]  # fmt: skip
            yield Figures(f"Attention, {title}: {passes}, {scope}, {heads}", rows)

    def _contest(self, causal: bool, dtype: torch.dtype) -> dict[str, list[Cost]]:
        costs: dict[str, list[Cost]] = {}
        for length in self.lengths:
            shape = (self.batch_size, length, self.num_heads, self.dim // self.num_heads)
            like = torch.empty(0, dtype=dtype, device=self.device)
            inputs = Inputs.draw(shape, like, self.backward)
            work = {"sdpa": sdpa_work(inputs, causal, self.projections)}
            for name, make in self.contestants():
                if name in costs and self._too_large(costs[name][-1], length):
                    continue
                torch.manual_seed(self.seed)
                found = attention_work(*make(length), inputs, causal, self.projections)
                if found is not None:
                    work[name] = found
            if len(work) == 1 and len(costs) < 2:
                raise UserError(
                    "no attention of those asked for can run so; see causal and attentions"
                )
            for name, cost in self._measured(work, causal, length):
                costs.setdefault(name, []).append(cost)
        return costs

    def _too_large(self, last: Cost, length: int) -> bool:
        return last.bytes * (length / last.length) ** 2 > self.memory_limit * 1e9

    def _measured(
        self, work: dict[str, Work], causal: bool, length: int
    ) -> Iterator[tuple[str, Cost]]:
        memory, flops = {}, {}
        for name, one in work.items():  # warms up, too
            memory[name] = peak_bytes(partial(one.run, self.backward), self.device)
            with FlopCounterMode(display=False, custom_mapping=_CPU_FLOPS) as counter:
                one.run(self.backward)
            flops[name] = counter.get_total_flops()

        def turn(number: int, work: Work) -> Sample:
            return timed(lambda: work.run(self.backward))

        turns = {name: partial(turn, work=one) for name, one in work.items()}
        samples = take_turns(turns, self.rounds)
        for name, one in work.items():
            seconds = statistics.median(sample.seconds for sample in samples[name])
            cache = one.cache_bytes() if causal else None
            row: Row = {
                "attention": name,
                "n": length,
                "ms": seconds * 1e3,
                "x sdpa": ratios(samples[name], samples["sdpa"]),
                "time grows as n^": None,
                "peak MB": memory[name] / 1e6,
                "cache B/token": None if cache is None else cache / length,
                "parameters": sum(p.numel() for p in one.module.parameters()),
                "GFLOP": flops[name] / 1e9,
            }
            yield name, Cost(length, seconds, memory[name], row)


def exponent(costs: Sequence[Cost], shortest: int = 4096) -> float | None:
    """k of the fit time ~ n^k over lengths from `shortest` up; None for fewer than two."""
    points = [(math.log(c.length), math.log(c.seconds)) for c in costs if c.length >= shortest]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def _draw(costs: dict[str, list[Cost]], title: str, directory: Path) -> None:
    from seqattn.analysis.plots import cost_curves, save  # matplotlib takes a second to import

    times = {name: [(c.length, c.seconds * 1e3) for c in found] for name, found in costs.items()}
    memory = {name: [(c.length, c.bytes / 1e6) for c in found] for name, found in costs.items()}
    for view, label, series in (
        ("time", "time, ms", times),
        ("memory", "peak memory beside the inputs, MB", memory),
    ):
        path = directory / f"{title.replace(', ', '_')}_{view}.png"
        print(f"drawn to {save(cost_curves(series, title, label), path)}", file=sys.stderr)
