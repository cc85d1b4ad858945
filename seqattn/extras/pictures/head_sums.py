"""Sums of attention statistics over the queries of a batch, for each head."""

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
from seqattn.extras.pictures.head_statistics import entropy, mass_on, relative_entropy
from seqattn.tokens import BOS, EOS

OFFSETS = range(-3, 4)
"""Relative positions that a positional head may attend to."""


@dataclass
class Calls:
    """Recorded calls of one attention: weights and visible keys."""

    heads: int
    weights: list[Tensor] = field(default_factory=list)
    visible: list[Tensor] = field(default_factory=list)
    chosen: list[Tensor] = field(default_factory=list)

    def note(self, weights: Tensor, visible: Tensor | None) -> Tensor:
        """Record weights; a no-op edit."""
        mask = torch.ones_like(weights) if visible is None else visible.expand_as(weights)
        self.weights.append(weights)
        self.visible.append(mask.bool())
        return weights

    def note_routes(self, attention: MixtureOfAttention, args: tuple[Tensor, ...]) -> None:
        """Record the chosen experts; a forward hook."""
        self.chosen.append(attention.route(args[0]).chosen)

    def of_heads(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield weights and visible (B, H, T, S) of each call, for all heads.

        The heads of a mixture are its experts; queries that did not choose one see nothing there.
        """
        for number, (weights, visible) in enumerate(zip(self.weights, self.visible, strict=True)):
            if self.chosen:
                rows = self.chosen[number].transpose(1, 2)[..., None].expand_as(weights)
                empty = weights.new_zeros(len(rows), self.heads, *rows.shape[2:])
                yield empty.scatter(1, rows, weights), empty.bool().scatter(1, rows, visible)
            else:
                yield weights, visible

    def joined(self) -> tuple[Tensor, Tensor]:
        """Return the concatenated steps of one pass, weights in float64."""
        weights, visible = zip(*self.of_heads(), strict=True)
        return torch.cat(weights, dim=2).double(), torch.cat(visible, dim=2)


@contextmanager
def watching(model: nn.Module) -> Iterator[dict[str, Calls]]:
    """Record the weights of attentions by name, in one pass over complete targets."""
    seen: dict[str, Calls] = {}
    with ExitStack() as stack:
        for name, part in makers(model):
            if has_weights(part):
                owner: Any = model.get_submodule(name)
                heads = owner.gated_heads if isinstance(owner, Attention) else 1
                seen[name] = Calls(heads)
                stack.enter_context(intervene(model, weights={name: seen[name].note}))
                if isinstance(owner, MixtureOfAttention):
                    stack.enter_context(owner.register_forward_pre_hook(seen[name].note_routes))
        yield seen


class HeadSums:
    """Sums and counts over queries, for each head.

    Args:
        heads: number of heads.
    """

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.totals: dict[str, Tensor] = {}

    def mean(self, name: str, head: int) -> float | None:
        """Return the mean for one head, or None without queries."""
        if name not in self.totals:
            return None
        total, count = self.totals[name][:, head].tolist()
        return total / count if count else None

    def commonest_offset(self, head: int) -> tuple[int | None, float | None]:
        """Return the relative position most often attended to, and its share; None without any."""
        shares = {offset: self.mean(f"{offset}", head) for offset in OFFSETS}
        defined = {offset: share for offset, share in shares.items() if share is not None}
        offset = max(defined, key=lambda offset: defined[offset], default=None)
        return offset, None if offset is None else defined[offset]

    def add(
        self,
        weights: Tensor,
        visible: Tensor,
        keys: Tensor,
        real: Tensor,
        rare: Tensor,
        decides: Tensor | None,
    ) -> None:
        """Add a batch.

        Args:
            weights: (B, H, T, S) in float64.
            visible: the same shape, True where a query may attend.
            keys: (B, S) ids.
            real: (B, T) True where a query is a token.
            rare: (B, S) True where a key is rare.
            decides: (B, T) the key that determines each target token, -1 for none; None for
                self-attention.
        """
        counts = visible.sum(dim=-1)
        rows = real[:, None] & (weights > 0).any(dim=-1)  # a query may have no weight at all
        has_choice = rows & (counts > 1)
        words = weights.masked_fill((keys == EOS)[:, None, None], 0.0)
        mark = (keys == EOS) | (keys == BOS)
        uniform = (visible & rare[:, None, None]).sum(dim=-1) / counts.clamp(min=1)
        has_rare = rows & rare.any(dim=-1)[:, None, None]
        self._sum("entropy", entropy(weights), rows)
        self._sum("relative_entropy", relative_entropy(weights, visible), has_choice)
        self._sum("confidence", words.amax(dim=-1), rows)
        self._sum("mark", mass_on(weights, mark), rows)
        self._sum("rare", mass_on(weights, rare), has_rare)
        self._sum("rare_if_uniform", uniform, has_rare)
        if decides is None:
            self._add_offsets(weights, visible, rows, has_choice)
        else:
            hits = weights.argmax(dim=-1) == decides[:, None]
            self._sum("alignment", hits, has_choice & (decides >= 0)[:, None])

    def _add_offsets(self, weights: Tensor, visible: Tensor, rows: Tensor, several: Tensor) -> None:
        """Add how much weight self-attention puts on each relative position."""
        largest = weights.argmax(dim=-1)
        queries = torch.arange(weights.shape[2], device=weights.device)
        for offset in OFFSETS:
            key = queries + offset
            there = (key >= 0) & (key < len(queries))
            index = key.clamp(0, len(queries) - 1)[:, None].expand(*weights.shape[:3], 1)
            is_visible = there & visible.gather(3, index)[..., 0]
            self._sum(f"{offset}", largest == key, several & is_visible)
            name = {-1: "before", 0: "own", 1: "after"}.get(offset)
            if name:
                self._sum(name, weights.gather(3, index)[..., 0], rows & is_visible)

    def _sum(self, name: str, values: Tensor, rows: Tensor) -> None:
        """Add values (B, H, T) of the rows that count."""
        counted = values.double().masked_fill(~rows, 0.0)
        counts = rows.expand_as(counted).double()
        added = torch.stack([counted.sum(dim=(0, 2)), counts.sum(dim=(0, 2))])
        self.totals[name] = self.totals.get(name, 0.0) + added
