"""What one more token costs after few tokens and after many: cached decoding by each attention."""

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from seqattn.attention.masks import Mask
from seqattn.benchmarks.contestants import Contestant
from seqattn.errors import UserError


class StepCost(NamedTuple):
    """Cached decoding of one attention, projections included."""

    name: str
    tokens: int
    early: float
    """Seconds a token, median of the second tenth of all tokens."""
    late: float
    """The same of the last tenth."""
    cache_bytes: int
    """After the last token."""


def measure_steps(
    contestants: Sequence[Contestant], tokens: int, dim: int, device: str = "cpu"
) -> list[StepCost]:
    """Decodes `tokens` tokens one by one with each attention that can.

    Raises:
        UserError: for fewer than 20 tokens, which have no tenths to compare.
    """
    if tokens < 20:
        raise UserError(f"attention.decode must be at least 20 tokens, got {tokens}")
    costs = []
    for contestant in contestants:
        torch.manual_seed(0)
        attention, position = contestant.make(tokens)
        if not attention.abilities.fits("decoder"):
            continue
        attention.to(device).eval()
        position.to(device).eval()
        cache = attention.make_cache(beams=1)
        x, places = torch.randn(1, 1, dim, device=device), torch.arange(tokens, device=device)
        seconds = []
        with torch.inference_mode():
            for token in range(tokens):
                mask = Mask(places[token : token + 1], places[: token + 1], causal=True)
                began = time.perf_counter()
                attention(x, attention.project(x), mask, position, cache)
                if x.device.type == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - began)
        tenth = tokens // 10
        early = statistics.median(seconds[tenth : 2 * tenth])
        late = statistics.median(seconds[-tenth:])
        costs.append(StepCost(contestant.name, tokens, early, late, cache.nbytes))
    return costs
