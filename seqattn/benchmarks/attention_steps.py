"""What one more token costs each attention, through its cache."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le

from seqattn.attention.base import Attention
from seqattn.benchmarks.attention_work import decode
from seqattn.benchmarks.attentions import AttentionChoices
from seqattn.benchmarks.suite import Figures, Row, timed
from seqattn.checking import checked
from seqattn.errors import UserError
from seqattn.ops.memory import keep_freed_memory
from seqattn.positions.base import Position


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
        rows = [
            self._row(name, attention.eval(), position.eval())
            for name, attention, position in self.contestants(self.tokens)
            if attention.abilities.fits("decoder")
        ]
        if not rows:
            raise UserError("none of the attentions asked for decodes; choose others")
        yield Figures(f"Cached decoding of {self.tokens:,} tokens, projections included", rows)

    def _row(self, name: str, attention: Attention, position: Position) -> Row:
        cache = attention.make_cache(beams=1)
        x = torch.randn(1, 1, self.dim, device=self.device).expand(1, self.tokens, self.dim)
        steps = decode(attention, position, x, cache)
        seconds = [timed(lambda: next(steps)).seconds for _ in range(self.tokens)]
        tenth = self.tokens // 10
        early = statistics.median(seconds[tenth : 2 * tenth])
        late = statistics.median(seconds[-tenth:])
        return {
            "attention": name,
            "early, us a token": early * 1e6,
            "late, us a token": late * 1e6,
            "late / early": late / early,
            "cache, bytes": cache.nbytes,
        }
