"""Decomposition of an attention: contribution of each key to each query's output."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import capture
from seqattn.attention.base import AttentionOutput
from seqattn.attention.experts import MixtureOfAttention
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position

Openable = MultiHeadAttention | MixtureOfAttention
"""Attentions whose output is a sum over keys, if their kernel has weights."""


@dataclass(frozen=True)
class Decomposition:
    """One call of an attention, decomposed over the E heads that its output projection reads.

    The output is `contributions` summed over keys plus the projection's bias.
    """

    observed: Tensor
    """(B, H, T, S) the kernel's weights, as in `capture`."""
    weights: Tensor
    """(B, E, T, S) multipliers of the values: those weights and all gates on them."""
    values: Tensor
    """(B, E, S, Dh)."""
    terms: Tensor | None
    """(B, E, T, S, Dh) terms that positions add for each key, weighted; None for none."""
    projection: nn.Linear
    """Projection from E * Dh to D."""
    output: Tensor
    """(B, T, D)."""

    @property
    def shares(self) -> Tensor:
        """(B, T, S) weights averaged over heads, 0 where below 0; rows sum to 1, or to 0 without
        visible keys."""
        return shares_of(self.weights.sum(dim=1).clamp(min=0))

    def contributions(self) -> Tensor:
        """(B, T, S, D) contribution of each key to the output of each query."""
        heads = self.projection.weight.unflatten(1, (self.values.shape[1], -1))  # (D, E, Dh)
        projected = torch.einsum("besd,oed->beso", self.values, heads)
        by_values = torch.einsum("bets,beso->btso", self.weights, projected)
        if self.terms is None:
            return by_values
        return by_values + torch.einsum("betsd,oed->btso", self.terms, heads)


def shares_of(amounts: Tensor) -> Tensor:
    """Normalize amounts (..., S), none below 0, by their sum; 0 if all are 0."""
    total = amounts.sum(dim=-1, keepdim=True)
    return amounts / total.masked_fill(total == 0, 1.0)


def can_open(attention: nn.Module) -> TypeGuard[Openable]:
    """Return True if `decomposed` can decompose it."""
    if not isinstance(attention, Openable) or "accounts" in attention.exceptions:
        return False
    return attention.abilities.weights


@contextmanager
def decomposed(model: nn.Module) -> Iterator[dict[str, Decomposition]]:
    """Decompose the outputs of the model's attentions within the block, without changing any.

    Args:
        model: any module that holds attentions.

    Yields:
        The last call of each by its name, such as `decoder.layers.0.cross_attention`, without those
        that `can_open` rejects.
    """
    parts: dict[str, Decomposition] = {}

    def keep(
        name: str, attention: Openable, args: tuple[Any, ...], result: AttentionOutput
    ) -> None:
        parts[name] = _parts(attention, args, maps[name][-1], result.output)

    with capture(model) as maps, ExitStack() as stack:
        for name, module in model.named_modules():
            if can_open(module):
                stack.enter_context(module.register_forward_hook(partial(keep, name)))
        yield parts


def _parts(
    attention: Openable, args: tuple[Any, ...], weights: Tensor, output: Tensor
) -> Decomposition:
    """Decompose a call without a cache. Args: args: of `Attention.forward`; weights: observed."""
    query, keys_values, mask, position = args[:4]
    heads, terms = attention.gated_heads, _value_terms(attention, weights, mask, position)
    if terms is not None:
        flat = _gated(attention, query, terms.flatten(3))
        terms = flat.unflatten(3, terms.shape[3:])
    values = keys_values.values.repeat_interleave(heads // keys_values.values.shape[1], dim=1)
    gated = _gated(attention, query, weights).to(values)  # a kernel may compute them in float32
    return Decomposition(weights, gated, values, terms, attention.output, output)


def _gated(attention: Openable, query: Tensor, x: Tensor) -> Tensor:
    """Multiply x (B, H, T, N) of the kernel's heads by all gates: (B, E, T, N)."""
    if isinstance(attention, MixtureOfAttention):
        routes = attention.route(query)
        gates, chosen = (part.transpose(1, 2)[..., None] for part in (routes.gates, routes.chosen))
        every = x.new_zeros(len(x), attention.num_experts, *x.shape[2:])
        x = every.scatter(1, chosen.expand_as(x), x * gates.to(x.dtype))
    return x if attention.gates is None else x * attention.gates.to(x.dtype)[:, None, None]


def _value_terms(
    attention: Openable, weights: Tensor, mask: Mask, position: Position
) -> Tensor | None:
    """Return the terms that positions add to the context per key: (B, H, T, S, Dh)."""
    kernel = attention.kernel
    if not isinstance(kernel, WeightedKernel) or "value_term" not in position.hooks:
        return None
    keys = torch.eye(weights.shape[-1]).to(weights)
    terms = [kernel.value_term(weights * key, mask, position) for key in keys]
    return torch.stack([term for term in terms if term is not None], dim=3)
