"""Cost of one more token for each attention with a cache."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from annotated_types import Ge, Le

from benchmarks.attention_work import decode
from benchmarks.attentions import AttentionChoices
from benchmarks.suite import Figures, Row, Spread, timed
from seqattn.attention.base import Mixer
from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory
from seqattn.positions.base import Position


@dataclass(frozen=True, kw_only=True)
class AttentionStepsSuite(AttentionChoices):
    """Cached decoding, one token at a time, with each attention that supports it.

    Args:
        tokens: number of tokens to decode.
        rounds: number of rounds in which each decodes them.
    """

    tokens: Annotated[int, Ge(20), Le(10**7)] = 2000
    rounds: Count = 3

    def measure(self) -> Iterator[Figures]:
        keep_freed_memory()
        decoding = {
            name: (attention.eval(), position.eval())
            for name, attention, position in self.contestants(self.tokens)
            if attention.abilities.fits("decoder")
        }
        if not decoding:
            raise UserError("none of the chosen attentions supports decoding; choose others")
        each: dict[str, list[_Decoded]] = {name: [] for name in decoding}
        for _ in range(self.rounds):
            for name, parts in decoding.items():
                each[name].append(self._decoded(*parts))
        rows: list[Row] = [
            {
                "attention": name,
                "early (us/token)": Spread.of([one.early * 1e6 for one in samples]),
                "late (us/token)": Spread.of([one.late * 1e6 for one in samples]),
                "late / early": Spread.of([one.late / one.early for one in samples]),
                "cache (bytes)": samples[0].cache,
            }
            for name, samples in each.items()
        ]
        yield Figures(f"Cached decoding of {self.tokens:,} tokens, projections included", rows)

    def _decoded(self, attention: Mixer, position: Position) -> "_Decoded":
        cache = attention.make_cache(beams=1)
        x = torch.randn(1, 1, self.dim, device=self.device).expand(1, self.tokens, self.dim)
        steps = decode(attention, position, x, cache)
        seconds = [timed(lambda: next(steps)).seconds for _ in range(self.tokens)]
        tenth = self.tokens // 10
        early = statistics.median(seconds[tenth : 2 * tenth])
        return _Decoded(early, statistics.median(seconds[-tenth:]), cache.nbytes)


class _Decoded(NamedTuple):
    """Seconds per token early and late, and bytes of the cache."""

    early: float
    late: float
    cache: int
