"""What is summed over the queries of a batch, head by head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import has_weights, makers
from seqattn.analysis.intervene import intervene
from seqattn.attention.base import Attention
from seqattn.attention.experts import MixtureOfAttention
from seqattn.tokens import BOS, EOS

PLACES = range(-3, 4)
"""Places relative to the query's that a positional head may look at."""


@dataclass
class Calls:
    """What one attention showed in a pass: weights, and where a query may look."""

    heads: int
    weights: list[Tensor] = field(default_factory=list)
    visible: list[Tensor] = field(default_factory=list)
    chosen: Tensor | None = None

    def note(self, weights: Tensor, visible: Tensor | None) -> Tensor:
        """An edit that changes nothing."""
        seen = torch.ones_like(weights) if visible is None else visible.expand_as(weights)
        self.weights.append(weights)
        self.visible.append(seen.bool())
        return weights

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and visible (B, H, T, S), and which head of `heads` each row is of, (B, H, T)."""
        weights = torch.cat(self.weights, dim=2).double()
        own = torch.arange(weights.shape[1], device=weights.device)[:, None]
        owners = own if self.chosen is None else self.chosen.transpose(1, 2)
        return weights, torch.cat(self.visible, dim=2), owners.expand(weights.shape[:3])


@contextmanager
def watching(model: nn.Module) -> Iterator[dict[str, Calls]]:
    """Notes all that attentions with weights do in one pass over whole targets, by their names."""
    seen: dict[str, Calls] = {}
    with ExitStack() as stack:
        for name, part in makers(model):
            if has_weights(part):
                owner: Any = model.get_submodule(name)
                heads = owner.gated_heads if isinstance(owner, Attention) else 1
                seen[name] = Calls(heads)
                stack.enter_context(intervene(model, weights={name: seen[name].note}))
                if isinstance(owner, MixtureOfAttention):
                    hook = owner.register_forward_pre_hook(_routes(seen[name]))
                    stack.callback(hook.remove)
        yield seen


def _routes(calls: Calls) -> Any:
    def note(attention: MixtureOfAttention, args: tuple[Tensor, ...]) -> None:
        calls.chosen = attention.route(args[0]).chosen

    return note


@dataclass
class Looks:
    """A batch of one attention's weights, and what its keys are.

    Args:
        weights: (B, H, T, S) in float64.
        visible: the same shape, where a query may look.
        owners: (B, H, T) the number of the head that a row is of.
        keys: (B, S) ids.
        real: (B, T) which queries are tokens.
        rare: (B, S) which keys are rare.
        decides: (B, T) the key that decides each target token, -1 for none; None of
            self-attention.
    """

    weights: Tensor
    visible: Tensor
    owners: Tensor
    keys: Tensor
    real: Tensor
    rare: Tensor
    decides: Tensor | None


class Sums:
    """Sums over queries, and how many they are, for each head.

    Args:
        heads: how many there are.
    """

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.totals: dict[str, Tensor] = {}

    def mean(self, name: str, head: int) -> float | None:
        """Of one head; None of no query."""
        if name not in self.totals:
            return None
        total, count = self.totals[name][:, head].tolist()
        return total / count if count else None

    def commonest_place(self, head: int) -> tuple[int | None, float | None]:
        """The relative place of most largest weights, and their share; None where none is seen."""
        shares = {place: self.mean(f"{place}", head) for place in PLACES}
        known = {place: share for place, share in shares.items() if share is not None}
        place = max(known, key=lambda one: known[one], default=None)
        return place, None if place is None else known[place]

    def add(self, looks: Looks) -> None:
        """Adds a batch."""
        weights, keys = looks.weights, looks.keys
        counts = looks.visible.sum(dim=-1)
        rows = looks.real[:, None] & (counts > 0)
        several = rows & (counts > 1)
        entropy = -torch.xlogy(weights, weights).sum(dim=-1)
        words = weights.masked_fill((keys == EOS)[:, None, None], 0.0)
        mark, rare = ((keys == EOS) | (keys == BOS))[:, None, None], looks.rare[:, None, None]
        uniform = (looks.visible & rare).sum(dim=-1) / counts.clamp(min=1)
        has_rare = rows & rare.any(dim=-1)
        self._sum("entropy", entropy, rows, looks)
        self._sum("relative_entropy", entropy / counts.clamp(min=2).log(), several, looks)
        self._sum("confidence", words.amax(dim=-1), rows, looks)
        self._sum("mark", (weights * mark).sum(dim=-1), rows, looks)
        self._sum("rare", (weights * rare).sum(dim=-1), has_rare, looks)
        self._sum("rare_if_uniform", uniform, has_rare, looks)
        largest = weights.argmax(dim=-1)
        if looks.decides is None:
            self._sum_places(looks, largest, several)
        else:
            decided = several & (looks.decides >= 0)[:, None]
            self._sum("alignment", largest == looks.decides[:, None], decided, looks)

    def _sum_places(self, looks: Looks, largest: Tensor, rows: Tensor) -> None:
        """What of self-attention is at places relative to the query's own."""
        own = torch.arange(looks.weights.shape[2], device=largest.device)
        for place in PLACES:
            key = own + place
            there = (key >= 0) & (key < len(own))
            index = key.clamp(0, len(own) - 1)[:, None].expand(*looks.weights.shape[:3], 1)
            seen = there & looks.visible.gather(3, index)[..., 0]
            self._sum(f"{place}", largest == key, rows & seen, looks)
            name = {-1: "before", 0: "own", 1: "after"}.get(place)
            if name:
                mass = looks.weights.gather(3, index)[..., 0]
                self._sum(name, mass, looks.real[:, None] & seen, looks)

    def _sum(self, name: str, values: Tensor, rows: Tensor, looks: Looks) -> None:
        """Adds values (B, H, T) of the rows that count."""
        owners = looks.owners
        values, rows = (x.expand(owners.shape).to(looks.weights.dtype) for x in (values, rows))
        total = self.totals.setdefault(name, looks.weights.new_zeros(2, self.heads))
        for number, part in enumerate((values * rows, rows)):
            total[number].index_add_(0, owners.flatten(), part.flatten())
