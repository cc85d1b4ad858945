"""Interventions on attention weights in any call: the counterpart of `capture`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import has_weights, makers, place_of
from seqattn.attention.base import Attention
from seqattn.attention.observation import Edit
from seqattn.errors import UserError


@contextmanager
def intervene(
    model: nn.Module,
    weights: Mapping[str, Edit] | Sequence[tuple[str, Edit]] | None = None,
    gates: Mapping[str, Tensor | Sequence[float]] | None = None,
) -> Iterator[None]:
    """Edit the attention of `model` within the block, including in decoding.

    A name is the path of an attention module, such as `decoder.layers.0.cross_attention`, or a
    pattern, such as `decoder.*` or `*`; if several match, all apply, in order. `capture` within the
    block records the edited weights. A search with `workers` opened before the block is not
    affected.

    Args:
        model: any module that contains attentions.
        weights: an edit for each name, or (name, edit) pairs, in which a name may occur several
            times. An edit is a function of the true weights (B, H, T, S) and of the visible keys
            (bool, broadcastable to them, or None for all) that returns the weights to use. Rows
            are as in `Maps`. `uniform`, `permuted`, `without_heads` and `without_keys` create
            edits.
        gates: for each name, a factor per head that multiplies the head's output; 0 removes the
            head. Works for mechanisms without weights too, and is differentiable.

    Raises:
        UserError: no attention matches a name, or one that does has no weights to edit or a
            different number of heads.
    """
    parts = dict(makers(model))
    attentions = {n: part for n, part in model.named_modules() if isinstance(part, Attention)}
    edits: dict[str, list[Edit]] = {}
    pairs = weights.items() if isinstance(weights, Mapping) else weights or ()
    for pattern, edit in pairs:
        for name in _named(pattern, parts):
            if not has_weights(parts[name]):
                if name == pattern:
                    raise UserError(f"{name} has no attention weights to edit; use gates")
                continue
            edits.setdefault(name, []).append(edit)
    factors: dict[str, Tensor] = {}
    device = next(model.parameters()).device
    for pattern, values in (gates or {}).items():
        for name in _named(pattern, attentions):
            one = torch.as_tensor(values, dtype=torch.float32, device=device)
            heads = attentions[name].gated_heads
            if one.shape != (heads,):
                raise UserError(f"{name} has {heads} heads, got gates for {one.numel()}")
            factors[name] = factors[name] * one if name in factors else one
    before = {name: parts[name].edits for name in edits}
    gated = {name: attentions[name].gates for name in factors}
    try:
        for name, several in edits.items():
            parts[name].edits = (*before[name], *several)
        for name, factor in factors.items():
            own = gated[name]
            attentions[name].gates = factor if own is None else own * factor
        yield
    finally:
        for name, old in before.items():
            parts[name].edits = old
        for name, old_gates in gated.items():
            attentions[name].gates = old_gates


def uniform(weights: Tensor, visible: Tensor | None) -> Tensor:
    """Edit: equal weight on every visible key, with the same sum."""
    seen = torch.ones_like(weights) if visible is None else visible.expand_as(weights).to(weights)
    count = seen.sum(dim=-1, keepdim=True).clamp(min=1)
    return seen / count * weights.sum(dim=-1, keepdim=True)


def permuted(seed: int = 0) -> Edit:
    """Create an edit that shuffles each query's weights over its visible keys."""
    draws = torch.Generator().manual_seed(seed)

    def edit(weights: Tensor, visible: Tensor | None) -> Tensor:
        keys = torch.rand(weights.shape, generator=draws).to(weights.device)
        if visible is not None:
            keys = keys.masked_fill(~visible, 2.0)  # hidden keys last, in their order
        drawn = keys.argsort(dim=-1, stable=True)
        if visible is None:
            return weights.gather(-1, drawn)
        places = (~visible.expand_as(weights)).to(torch.uint8).argsort(dim=-1, stable=True)
        return torch.zeros_like(weights).scatter(-1, places, weights.gather(-1, drawn))

    return edit


def without_heads(*heads: int) -> Edit:
    """Create an edit that zeroes the weights of heads, from 0; UserError for unknown ones."""

    def edit(weights: Tensor, visible: Tensor | None) -> Tensor:
        count = weights.shape[1]
        if not all(0 <= head < count for head in heads):
            raise UserError(f"heads must be between 0 and {count - 1}, got {list(heads)}")
        mask = weights.new_ones(count)
        mask[list(heads)] = 0.0
        return weights * mask[:, None, None]

    return edit


def without_keys(*keys: int) -> Edit:
    """Create an edit that zeroes the weights on keys (indices from 0) without renormalization.

    Raises:
        UserError: a key is below 0.
    """
    if any(key < 0 for key in keys):
        raise UserError(f"keys must be 0 or above, got {list(keys)}")

    def edit(weights: Tensor, visible: Tensor | None) -> Tensor:
        mask = weights.new_ones(weights.shape[-1])
        mask[[key for key in keys if key < len(mask)]] = 0.0
        return weights * mask

    return edit


EDITS: Mapping[str, Callable[[int], Edit]] = {"uniform": lambda seed: uniform, "permuted": permuted}
"""Functions from a seed to an edit, by name."""


class AttentionGroups(NamedTuple):
    """Names of attentions by group."""

    groups: dict[str, list[str]]
    """"all"; "encoder", "decoder" and "cross", if there is more than one of them; and each layer,
    such as "cross 1", of those with several."""
    without: list[str]
    """Attentions without weights to replace."""


def attention_groups(model: nn.Module) -> AttentionGroups:
    """Group the attentions of a model by layer, by slot and all together.

    Raises:
        UserError: no attention has weights.
    """
    slots: dict[str, list[str]] = {"encoder": [], "decoder": [], "cross": []}
    without: list[str] = []
    for name, part in makers(model):
        (slots[place_of(name)[0]] if has_weights(part) else without).append(name)
    filled = {slot: names for slot, names in slots.items() if names}
    if not filled:
        raise UserError("this model has no attention weights; its mechanisms compute none")
    groups = {"all": [name for names in filled.values() for name in names]}
    if len(filled) > 1:
        groups |= filled
    for slot, names in filled.items():
        if len(names) > 1:
            groups |= {f"{slot} {number}": [name] for number, name in enumerate(names, 1)}
    return AttentionGroups(groups, without)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that match a pattern such as `decoder.*`."""
    fits = re.compile(translate(pattern)).match  # fnmatch itself would cache 32,768 patterns
    return [name for name in names if fits(name)]


def _named(pattern: str, known: Mapping[str, object]) -> list[str]:
    matches = matching(pattern, known)
    if not matches:
        raise UserError(f"unknown attention {pattern}; choose from {', '.join(known)}")
    return matches
