"""Softmaxes over parts of the keys, and their combination into a softmax over all keys."""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Partial(NamedTuple):
    """An unnormalized softmax over some of a query's keys."""

    context: Tensor  # (..., N, Dh), values weighted by exp(score - peak)
    total: Tensor  # (..., N, 1), the sum of those exponentials
    peak: Tensor  # (..., N, 1), the largest score, -inf without visible keys; no gradient

    def merge(self, other: "Partial") -> "Partial":
        """Return the softmax over the union of both disjoint key sets."""
        peak = torch.maximum(self.peak, other.peak)
        base = peak.masked_fill(peak == -torch.inf, 0.0)
        factor, other_factor = (self.peak - base).exp(), (other.peak - base).exp()
        context = factor * self.context + other_factor * other.context
        return Partial(context, factor * self.total + other_factor * other.total, peak)


def merged(parts: Iterable[Partial]) -> Tensor:
    """Return the softmax over the union of disjoint key sets: (..., N, Dh), 0 without keys."""
    context, total, _ = reduce(Partial.merge, parts)
    return context / total.masked_fill(total == 0, 1.0)


def end_to_end(parts: Iterable[Partial], dim: int) -> Partial:
    """Concatenate partials of different queries along `dim`."""
    return Partial(*(torch.cat(field, dim) for field in zip(*parts)))


def powers_(scores: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(score - peak), 0 where hidden, and the peak, overwriting `scores`.

    Args:
        scores: (..., c, s).
        allowed: bool, broadcastable to `scores`.
    """
    scores = scores.masked_fill_(~allowed, -torch.inf)
    peak = scores.detach().amax(dim=-1, keepdim=True)
    return scores.sub_(peak.masked_fill(peak == -torch.inf, 0.0)).exp_(), peak
