"""Softmaxes over parts of the keys, and the softmax over all of them that they make."""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """A softmax over some of a query's keys, not yet divided by the sum over all."""

    context: Tensor  # (..., N, Dh), values weighted by exp(score - peak)
    total: Tensor  # (..., N, 1), the sum of those exponentials
    peak: Tensor  # (..., N, 1), the largest score, -inf with nothing to see; no gradient

    def joined(self, other: "Partial") -> "Partial":
        """The same over the keys of both, which are disjoint."""
        peak = torch.maximum(self.peak, other.peak)
        base = peak.masked_fill(peak == -torch.inf, 0.0)
        one, two = (self.peak - base).exp(), (other.peak - base).exp()
        context = one * self.context + two * other.context
        return Partial(context, one * self.total + two * other.total, peak)


def merged(parts: Iterable[Partial]) -> Tensor:
    """The softmax over the union of disjoint key sets: (..., N, Dh), zeros with nothing to see."""
    context, total, _ = reduce(Partial.joined, parts)
    return context / total.masked_fill(total == 0, 1.0)


def end_to_end(parts: Iterable[Partial], dim: int) -> Partial:
    """Partials of different queries, one after the other along `dim`."""
    return Partial(*(torch.cat(field, dim) for field in zip(*parts)))


def powers_(scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """exp(score - peak), 0 where hidden, and the peak, worked out in place of `scores`.

    Args:
        scores: (..., c, s).
        allowed: bool, broadcastable to it.
    """
    scores = scores.masked_fill_(~allowed, -torch.inf)
    peak = scores.detach().amax(dim=-1, keepdim=True)
    return scores.sub_(peak.masked_fill(peak == -torch.inf, 0.0)).exp_(), peak
