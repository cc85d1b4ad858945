"""Cost of each attention over a range of lengths.

All contestants take turns in one process, length by length and round by round, with PyTorch's
`scaled_dot_product_attention` on the same inputs, and times are compared within a round. Memory is
the peak without the inputs. The process keeps freed memory as training does: otherwise page faults
grow with n, and so do times.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le, MinLen

from benchmarks.attention_work import (
    Cost,
    Inputs,
    Work,
    attention_work,
    exponent,
    is_attention,
    peak_bytes,
    sdpa_work,
)
from benchmarks.suite import Figures, Row, Suite, ratios, take_turns
from seqattn.attention.base import AttentionFactory, Mixer
from seqattn.checking import BadValue, Count, Positive, Width
from seqattn.errors import UserError
from seqattn.models.transformer import PositionFactory
from seqattn.ops.memory import keep_freed_memory
from seqattn.positions.base import Position, Stack
from seqattn.storage import user_path

Length = Annotated[int, Ge(1), Le(10**8)]
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class AttentionChoices(Suite):
    """Base of suites over attentions.

    Args:
        attentions: factories by name, without those of recurrent models.
        positions: factories by name, each tried with every attention.
        kernel: sizes for every kernel that has them, as `{"window": 256}`; strides are sqrt(n) by
            default.
        dim: width D.
        num_heads: heads H, and key heads where their number is the same.
        device: device to run on.
    """

    attentions: Mapping[str, AttentionFactory]
    positions: Mapping[str, PositionFactory] = field(default_factory=lambda: {"none": Position})
    kernel: Mapping[str, int] | None = None
    dim: Width = 512
    num_heads: Count = 8
    device: str = "cpu"

    def __post_init__(self) -> None:
        try:
            torch.empty(1, device=self.device).item()  # the meta device has no values
        except (RuntimeError, AssertionError) as error:
            raise BadValue("device", f"is not available, got {self.device}; use cpu") from error
        known = {name for make in self.attentions.values() for name in _chosen(_kernel(make))}
        for name in self.kernel or {}:
            if name not in known:
                sizes = ", ".join(sorted(known)) or "none"
                raise BadValue("kernel", f"must have keys from ({sizes}), got {name}")

    def contestants(self, length: int) -> Iterator[tuple[str, Mixer, Position]]:
        """Yield name, attention and position of every combination, for a length in tokens."""
        for name, factory in self.attentions.items():
            for scheme, position in self.positions.items():
                if not is_attention(factory):
                    continue
                make: Callable[..., Mixer] = factory
                torch.manual_seed(self.seed)
                attention = make(
                    query_dim=self.dim, memory_dim=self.dim, **self._sizes(make, length)
                )
                places = position(Stack(self.dim, self.num_heads)).at_layer(0)
                label = name if scheme == "none" else f"{name} + {scheme}"
                yield label, attention.to(self.device), places.to(self.device)

    def _sizes(self, factory: Callable[..., object], length: int) -> dict[str, object]:
        keywords = getattr(factory, "keywords", {})
        sizes: dict[str, object] = {"num_heads": self.num_heads}
        if keywords.get("num_kv_heads") == keywords.get("num_heads", 0):
            sizes["num_kv_heads"] = self.num_heads
        kernel = _kernel(factory)
        chosen = _chosen(kernel)
        if "stride" in chosen:
            chosen["stride"] = max(1, math.isqrt(length))
        if "max_length" in chosen:
            chosen["max_length"] = max(chosen["max_length"], length)
        chosen |= {name: size for name, size in (self.kernel or {}).items() if name in chosen}
        return {**sizes, "kernel": partial(kernel, **chosen)} if chosen else sizes


def _kernel(factory: object) -> Callable[..., object]:
    """Return the factory of the kernel of a factory's attentions."""
    kernel: Callable[..., object] = getattr(factory, "keywords", {}).get("kernel", dict)
    return kernel


def _chosen(kernel: object) -> dict[str, Any]:
    """Return the sizes that a kernel has."""
    return dict(getattr(kernel, "keywords", {}))


@dataclass(frozen=True, kw_only=True)
class AttentionSuite(AttentionChoices):
    """Every attention by itself, over several lengths.

    Args:
        lengths: increasing lengths in tokens.
        causal: True as in a decoder, False for bidirectional; unsupported attentions are skipped.
        precisions: precisions of inputs and parameters.
        batch_size: B.
        projections: include the projections from and to D, or run the kernel only; a mixer that is
            no attention always includes them.
        backward: forward and backward, or forward only.
        rounds: measured rounds; one more warms up.
        memory_limit: GB; lengths at which a contestant would need more are skipped.
        plots: directory for two plots, time and memory against n; None for none.
    """

    lengths: Annotated[Sequence[Length], MinLen(1)] = (1024, 2048, 4096, 8192)
    causal: Annotated[Sequence[bool], MinLen(1)] = (False, True)
    precisions: Annotated[Sequence[Literal["fp32", "bf16"]], MinLen(1)] = ("fp32",)
    batch_size: Count = 1
    projections: bool = False
    backward: bool = True
    rounds: Count = 3
    memory_limit: Positive = 6.0
    plots: str | None = None

    def measure(self) -> Iterator[Figures]:
        keep_freed_memory()
        passes = "forward and backward" if self.backward else "forward"
        scope = "with projections" if self.projections else "kernels only"
        heads = f"{self.num_heads} heads of {self.dim // self.num_heads}, batch {self.batch_size}"
        for precision, causal in product(self.precisions, self.causal):
            costs: dict[str, list[Cost]] = {}
            for length in self.lengths:
                work = self._work(costs, causal, _TYPES[precision], length)
                for name, cost in self._measured(work, causal, length):
                    costs.setdefault(name, []).append(cost)
            kind = str(_TYPES[precision]).removeprefix("torch.")
            title = f"{'causal' if causal else 'bidirectional'}, {kind}"
            if self.plots is not None:
                _draw(costs, title, user_path(self.plots))
            rows = [
                {**cost.row, "time grows as n^": exponent(several)}
                for several in costs.values()
                for cost in several
            ]
            yield Figures(f"Attention, {title}: {passes}, {scope}, {heads}", rows)

    def _work(
        self, costs: Mapping[str, list[Cost]], causal: bool, dtype: torch.dtype, length: int
    ) -> dict[str, Work]:
        """Return the work of contestants at a length, given their costs at shorter ones."""
        shape = (self.batch_size, self.num_heads, length, self.dim // self.num_heads)
        backward = self.backward
        like = torch.empty(0, dtype=dtype, device=self.device, requires_grad=backward)
        inputs = Inputs.draw(*shape, like)
        work = {"sdpa": sdpa_work(inputs, causal, self.projections)}
        for name, attention, position in self.contestants(length):
            last = costs[name][-1] if name in costs else None
            if last and last.bytes * (length / last.length) ** 2 > self.memory_limit * 1e9:
                continue
            call = attention_work(attention, position, inputs, causal, self.projections)
            if call is not None:
                work[name] = call
        if len(work) == 1 and len(costs) < 2:
            raise UserError("no attention can run; change suite.causal or suite.attentions")
        return work

    def _measured(
        self, work: Mapping[str, Work], causal: bool, length: int
    ) -> Iterator[tuple[str, Cost]]:
        memory = {name: peak_bytes(one.run, self.device) for name, one in work.items()}
        flops = {name: one.flops() for name, one in work.items()}  # also warms up
        turns = {name: one.turn for name, one in work.items()}
        samples = take_turns(turns, range(self.rounds))
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


def _draw(costs: Mapping[str, Sequence[Cost]], title: str, directory: Path) -> None:
    from benchmarks.cost_plot import cost_curves  # matplotlib takes a second to import
    from seqattn.extras.pictures.plots import save

    views: tuple[tuple[str, str, Callable[[Cost], float]], ...] = (
        ("time", "time (ms)", lambda cost: cost.seconds * 1e3),
        ("memory", "peak memory without inputs (MB)", lambda cost: cost.bytes / 1e6),
    )
    for view, label, value in views:
        series = {name: [(c.length, value(c)) for c in several] for name, several in costs.items()}
        path = directory / f"{title.replace(', ', '_')}_{view}.png"
        print(f"written to {save(cost_curves(series, title, label), path)}", file=sys.stderr)
