"""What attention weights say of each head: how broad it looks, and where its weight rests."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

DEAD = 0.9
"""Share of a head's weight on one key of each sentence from which on the head counts as dead: it
rests there whatever the query, as heads without anything to do look at a mark (Clark et al. 2019,
arXiv 1906.04341, section 3.2; a sink, Xiao et al. 2023, arXiv 2309.17453)."""
UNIFORM = 0.95
"""Relative entropy from which on a head counts as uniform."""


def distributions(weights: Tensor) -> Tensor:
    """Weights (B, H, T, S) whose rows sum to 1; NaN in rows without weight."""
    positive = weights.to(torch.promote_types(weights.dtype, torch.float32)).clamp(min=0.0)
    return positive / positive.sum(dim=-1, keepdim=True)


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each query's weights (B, H, T) in nats; NaN in rows without weight."""
    return torch.special.entr(distributions(weights)).sum(dim=-1)


def relative_entropy(weights: Tensor, visible: Tensor | None = None) -> Tensor:
    """Entropy of each query's weights, as a share of the largest that it could have.

    Args:
        weights: (B, H, T, S), a query's in a row.
        visible: bool, broadcastable to them, True where a query may look; None for everywhere.

    Returns:
        (B, H, T) from 0 (one key) to 1 (all visible keys alike); NaN where a query sees fewer than
        two keys, or gives no weight.
    """
    found = entropy(weights)
    seen = found.new_tensor(float(weights.shape[-1]))
    if visible is not None:
        seen = visible.expand_as(weights).sum(dim=-1).to(found)
    found = found / seen.log()
    return found.masked_fill(seen < 2, torch.nan)


def mass_on(weights: Tensor, keys: Tensor) -> Tensor:
    """The share of each query's weight (B, H, T) on some keys. Args: keys: (B, S) bool."""
    return (distributions(weights) * keys[:, None, None, :]).sum(dim=-1)


def sink_mass(weights: Tensor, queries: Tensor) -> Tensor:
    """The share of a sentence's weight on the key that gets most of it, over all its queries.

    Args:
        weights: (B, H, T, S).
        queries: bool, broadcastable to (B, H, T), True where a query counts.

    Returns:
        (B, H) NaN for a sentence without such a query.
    """
    counted = queries.expand(weights.shape[:-1])[..., None]
    rows = distributions(weights).masked_fill(~counted, 0.0)
    return rows.sum(dim=2).amax(dim=-1) / counted.sum(dim=(2, 3))


class Call(NamedTuple):
    """A call of an attention."""

    weights: Tensor
    """(B, H, T, S)."""
    visible: Tensor | None
    """As in `relative_entropy`."""
    queries: Tensor
    """(B, T) bool, True where a query is a token."""
    ends: Tensor
    """(B, S) bool, True where a key is `</s>`; sentences without count for no `end`."""


class HeadStatistics(NamedTuple):
    """Of each head of an attention, (H,), over all queries that count; NaN where none does."""

    entropy: Tensor
    """Mean relative entropy, 0 to 1."""
    end: Tensor
    """Mean share of weight on `</s>`."""
    sink: Tensor
    """Mean over sentences of the share of weight on one key."""

    @classmethod
    def of(cls, calls: Iterable[Call]) -> "HeadStatistics":
        """Of all calls of an attention."""
        parts = zip(*(_of_call(*call) for call in calls), strict=True)
        return cls(*(torch.cat(several, dim=1).nanmean(dim=1) for several in parts))

    @property
    def dead(self) -> Tensor:
        """(H,) bool, whether a head rests on one key of each sentence; see `DEAD`."""
        return self.sink >= DEAD

    @property
    def uniform(self) -> Tensor:
        """(H,) bool, whether a head looks everywhere alike; see `UNIFORM`."""
        return self.entropy >= UNIFORM


def _of_call(
    weights: Tensor, visible: Tensor | None, queries: Tensor, ends: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Relative entropy and share on the end (H, B*T), and on one key (H, B). Args: of `Call`."""
    entropy = relative_entropy(weights, visible).masked_fill(~queries[:, None], torch.nan)
    chosen = ~entropy.isnan()  # (B, H, T)
    ended = chosen & ends.any(dim=1)[:, None, None]
    end = mass_on(weights, ends).masked_fill(~ended, torch.nan)
    entropy, end = (x.transpose(0, 1).flatten(1) for x in (entropy, end))
    return entropy, end, sink_mass(weights, chosen).transpose(0, 1)
