"""Statistics of attention heads: entropy, and concentration of weight on single keys."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

DEAD = 0.9
"""Minimum share of weight on one key of each sentence for a head to count as dead: it attends there
for any query, as no-op heads attend to a special token (Clark et al. 2019, arXiv 1906.04341,
section 3.2; a sink, Xiao et al. 2023, arXiv 2309.17453)."""
UNIFORM = 0.95
"""Minimum relative entropy for a head to count as uniform."""


def distributions(weights: Tensor) -> Tensor:
    """Normalize the rows of weights (B, H, T, S) to sum to 1; NaN in rows without weight."""
    positive = weights.to(torch.promote_types(weights.dtype, torch.float32)).clamp(min=0.0)
    return positive / positive.sum(dim=-1, keepdim=True)


def entropy(weights: Tensor) -> Tensor:
    """Return the entropy of each query's weights (B, H, T) in nats; NaN in rows without weight."""
    return torch.special.entr(distributions(weights)).sum(dim=-1)


def relative_entropy(weights: Tensor, visible: Tensor | None = None) -> Tensor:
    """Return the entropy of each query's weights as a share of its maximum.

    Args:
        weights: (B, H, T, S), one row per query.
        visible: bool, broadcastable to `weights`, True where a query may attend; None for all.

    Returns:
        (B, H, T) from 0 (one key) to 1 (uniform over visible keys); NaN for queries with fewer than
        two visible keys or without weight.
    """
    entropies = entropy(weights)
    num_visible = entropies.new_tensor(float(weights.shape[-1]))
    if visible is not None:
        num_visible = visible.expand_as(weights).sum(dim=-1).to(entropies)
    entropies = entropies / num_visible.log()
    return entropies.masked_fill(num_visible < 2, torch.nan)


def mass_on(weights: Tensor, keys: Tensor) -> Tensor:
    """Return the share of each query's weight (B, H, T) on some keys. Args: keys: (B, S) bool."""
    return (distributions(weights) * keys[:, None, None, :]).sum(dim=-1)


def sink_mass(weights: Tensor, queries: Tensor) -> Tensor:
    """Return the share of a sentence's total weight on the key that gets most of it.

    Args:
        weights: (B, H, T, S).
        queries: bool, broadcastable to (B, H, T), True where a query counts.

    Returns:
        (B, H), NaN for a sentence without such a query.
    """
    counted = queries.expand(weights.shape[:-1])[..., None]
    rows = distributions(weights).masked_fill(~counted, 0.0)
    return rows.sum(dim=2).amax(dim=-1) / counted.sum(dim=(2, 3))


class Call(NamedTuple):
    """One recorded call of an attention module."""

    weights: Tensor
    """(B, H, T, S)."""
    visible: Tensor | None
    """Visible keys, as in `relative_entropy`."""
    queries: Tensor
    """(B, T) bool, True where a query is a token."""
    ends: Tensor
    """(B, S) bool, True where a key is `</s>`; sentences without it do not count for `end`."""


class HeadStatistics(NamedTuple):
    """Statistics of each head of an attention, (H,), over all counted queries; NaN without any."""

    entropy: Tensor
    """Mean relative entropy, 0 to 1."""
    end: Tensor
    """Mean share of weight on `</s>`."""
    sink: Tensor
    """Mean over sentences of the largest share of weight on one key."""

    @classmethod
    def of(cls, calls: Iterable[Call]) -> "HeadStatistics":
        """Compute the statistics of all calls of an attention."""
        parts = zip(*(_of_call(*call) for call in calls), strict=True)
        return cls(*(torch.cat(values, dim=1).nanmean(dim=1) for values in parts))

    @property
    def dead(self) -> Tensor:
        """(H,) bool, True if a head attends to one key of each sentence; see `DEAD`."""
        return self.sink >= DEAD

    @property
    def uniform(self) -> Tensor:
        """(H,) bool, True if a head attends to all keys alike; see `UNIFORM`."""
        return self.entropy >= UNIFORM


def _of_call(
    weights: Tensor, visible: Tensor | None, queries: Tensor, ends: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return relative entropy and mass on the end (H, B*T), and sink mass (H, B), of a `Call`."""
    entropy = relative_entropy(weights, visible).masked_fill(~queries[:, None], torch.nan)
    chosen = ~entropy.isnan()  # (B, H, T)
    at_end = chosen & ends.any(dim=1)[:, None, None]
    end = mass_on(weights, ends).masked_fill(~at_end, torch.nan)
    entropy, end = (x.transpose(0, 1).flatten(1) for x in (entropy, end))
    return entropy, end, sink_mass(weights, chosen).transpose(0, 1)
