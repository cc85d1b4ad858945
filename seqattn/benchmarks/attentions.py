"""Attentions by the names that a user types, and what each costs token by token."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Le

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.benchmarks.attention_work import decode
from seqattn.benchmarks.measure import timed
from seqattn.benchmarks.suite import Figures, Row, Suite
from seqattn.checking import BadValue, Count, Width, checked
from seqattn.errors import UserError
from seqattn.models.transformer import PositionFactory
from seqattn.ops.memory import keep_freed_memory
from seqattn.positions.base import Position, Stack


def is_attention(factory: Callable[..., object]) -> bool:
    """Whether a factory makes what fills a slot of a Transformer, not a recurrent alignment."""
    made = getattr(factory, "func", factory)
    return isinstance(made, type) and issubclass(made, Attention)


class Contestant(NamedTuple):
    """A named attention with its positions, made for a length, which strides may follow."""

    name: str
    make: Callable[[int], tuple[Attention, Position]]


@dataclass(frozen=True, kw_only=True)
class AttentionChoices(Suite):
    """What suites over attentions have in common.

    Args:
        attentions: factories by name; those of recurrent models are left out.
        positions: factories by name, each tried with every attention.
        kernel: sizes for every kernel that has them, as `{"window": 256}`; strides follow sqrt(n)
            where none is given.
        dim: width D.
        num_heads: heads H, and key heads of what has as many.
        device: where it runs.
    """

    attentions: Mapping[str, AttentionFactory]
    positions: Mapping[str, PositionFactory] = field(default_factory=lambda: {"none": Position})
    kernel: Mapping[str, int] | None = None
    dim: Width = 512
    num_heads: Count = 8
    device: str = "cpu"

    def __post_init__(self) -> None:
        try:
            torch.empty(1, device=self.device).item()  # meta has no numbers to give
        except (RuntimeError, AssertionError) as error:
            raise BadValue("device", f"cannot be used here; use cpu, got {self.device}") from error

    def contestants(self) -> Iterator[Contestant]:
        """Every attention with every position."""
        for name, attention in self.attentions.items():
            for scheme, position in self.positions.items():
                if is_attention(attention):
                    label = name if scheme == "none" else f"{name} + {scheme}"
                    yield Contestant(label, partial(self._make, attention, position))

    def _make(
        self, factory: AttentionFactory, position: PositionFactory, length: int
    ) -> tuple[Attention, Position]:
        make: Callable[..., Attention] = factory
        attention = make(query_dim=self.dim, memory_dim=self.dim, **self._sizes(factory, length))
        stack = Stack(self.dim, attention.num_heads)
        return attention.to(self.device), position(stack).at_layer(0).to(self.device)

    def _sizes(self, factory: AttentionFactory, length: int) -> dict[str, object]:
        """As many heads as asked for, and the sizes of the kernel for a length."""
        given = getattr(factory, "keywords", {})
        sizes: dict[str, object] = {"num_heads": self.num_heads}
        if given.get("num_kv_heads") == given.get("num_heads", 0):
            sizes["num_kv_heads"] = self.num_heads
        kernel: Callable[..., object] = given.get("kernel", dict)
        chosen = dict(getattr(kernel, "keywords", {}))
        if "stride" in chosen:
            chosen["stride"] = max(1, math.isqrt(length))
        if "max_length" in chosen:
            chosen["max_length"] = max(chosen["max_length"], length)
        chosen |= {name: size for name, size in (self.kernel or {}).items() if name in chosen}
        return {**sizes, "kernel": partial(kernel, **chosen)} if chosen else sizes


@checked
@dataclass(frozen=True, kw_only=True)
class AttentionStepsSuite(AttentionChoices):
    """Cached decoding, one token after the other, by each attention that can.

    Args:
        tokens: to decode.
    """

    tokens: Annotated[int, Ge(20), Le(10**7)] = 2000

    def measure(self) -> Iterator[Figures]:
        keep_freed_memory()
        rows = [row for row in map(self._row, self.contestants()) if row is not None]
        if not rows:
            raise UserError("none of the attentions asked for decodes; choose others")
        title = f"Cached decoding of {self.tokens:,} tokens, projections included"
        yield Figures(title, rows)

    def _row(self, contestant: Contestant) -> Row | None:
        torch.manual_seed(self.seed)
        attention, position = contestant.make(self.tokens)
        if not attention.abilities.fits("decoder"):
            return None
        attention.eval()
        position.eval()
        cache = attention.make_cache(beams=1)
        x = torch.randn(1, 1, self.dim, device=self.device)
        steps = decode(attention, position, x.expand(1, self.tokens, self.dim), cache)
        seconds = [timed(lambda: next(steps)).seconds for _ in range(self.tokens)]
        tenth = self.tokens // 10
        early = statistics.median(seconds[tenth : 2 * tenth])
        late = statistics.median(seconds[-tenth:])
        return {
            "attention": contestant.name,
            "early, us a token": early * 1e6,
            "late, us a token": late * 1e6,
            "late / early": late / early,
            "cache, bytes": cache.nbytes,
        }
