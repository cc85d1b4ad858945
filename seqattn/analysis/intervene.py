"""Attention weights, replaced around any call: the dual of `capture`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import has_weights, makers, place_of
from seqattn.attention.base import Attention
from seqattn.attention.watched import Edit
from seqattn.errors import UserError


@contextmanager
def intervene(
    model: nn.Module,
    weights: Mapping[str, Edit] | Sequence[tuple[str, Edit]] | None = None,
    gates: Mapping[str, Tensor | Sequence[float]] | None = None,
) -> Iterator[None]:
    """Edits the attention of `model` for as long as the block runs, in decoding too.

    A name is that of an attention, such as `decoder.layers.0.cross_attention`, or a pattern for
    several, such as `decoder.*` or `*`; where two fit, both act, in their order. `capture` within
    the block is shown the edited weights. A search with `workers` that were opened before the
    block does not know of it.

    Args:
        model: any module that holds attentions.
        weights: for each name an edit, or pairs of a name and an edit, of which a name may have
            several: a function of the true weights (B, H, T, S) and of where a
            query may look (bool, broadcastable to them, or None for everywhere) that gives others,
            of which the context is made. Rows are as `Maps` has them. `uniform`, `permuted`,
            `without_heads` and `without_keys` make edits.
        gates: for each name a factor for each head, which multiplies what the head gives: 0 takes
            it out. It works for mechanisms without weights too, and gradients reach it.

    Raises:
        UserError: for a name that no attention has, one that has no weights to edit, or another
            number of heads.
    """
    parts = dict(makers(model))
    attentions = {n: part for n, part in model.named_modules() if isinstance(part, Attention)}
    edits: dict[str, list[Edit]] = {}
    pairs = weights.items() if isinstance(weights, Mapping) else weights or ()
    for pattern, edit in pairs:
        for name in _named(pattern, parts):
            if not has_weights(parts[name]):
                if name == pattern:
                    raise UserError(f"{name} has no attention weights to edit; give it gates")
                continue
            edits.setdefault(name, []).append(edit)
    factors: dict[str, Tensor] = {}
    device = next(model.parameters()).device
    for pattern, given in (gates or {}).items():
        for name in _named(pattern, attentions):
            one = torch.as_tensor(given, dtype=torch.float32, device=device)
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
    """An edit: the same weight on every key that a query may look at; their sum stays."""
    seen = torch.ones_like(weights) if visible is None else visible.expand_as(weights).to(weights)
    count = seen.sum(dim=-1, keepdim=True).clamp(min=1)
    return seen / count * weights.sum(dim=-1, keepdim=True)


def permuted(seed: int = 0) -> Edit:
    """An edit: each query's weights in another order, drawn anew, over the keys that it may see."""
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
    """An edit: no weights for these heads, counted from 0; a `UserError` for others."""

    def edit(weights: Tensor, visible: Tensor | None) -> Tensor:
        count = weights.shape[1]
        if not all(0 <= head < count for head in heads):
            raise UserError(f"heads must be from 0 to {count - 1}, got {list(heads)}")
        kept = weights.new_ones(count)
        kept[list(heads)] = 0.0
        return weights * kept[:, None, None]

    return edit


def without_keys(*keys: int) -> Edit:
    """An edit: no weight on these keys, counted from 0; the others keep theirs.

    Raises:
        UserError: for a key below 0.
    """
    if any(key < 0 for key in keys):
        raise UserError(f"keys are counted from 0, got {list(keys)}")

    def edit(weights: Tensor, visible: Tensor | None) -> Tensor:
        kept = weights.new_ones(weights.shape[-1])
        kept[[key for key in keys if key < len(kept)]] = 0.0
        return weights * kept

    return edit


EDITS: Mapping[str, Callable[[int], Edit]] = {"uniform": lambda seed: uniform, "permuted": permuted}
"""What weights are replaced by: a seed gives an edit."""


class Parts(NamedTuple):
    """Names of attentions, by what they are together."""

    parts: dict[str, list[str]]
    """"all" and, where there are several, "encoder", "decoder" and "cross" and each layer of
    them, such as "cross 1"."""
    without: list[str]
    """Those that have no weights to replace."""


def parts_of(model: nn.Module) -> Parts:
    """The attentions of a model, layer by layer, slot by slot and all of them.

    Raises:
        UserError: none has weights.
    """
    slots: dict[str, list[str]] = {"encoder": [], "decoder": [], "cross": []}
    without: list[str] = []
    for name, part in makers(model):
        (slots[place_of(name)[0]] if has_weights(part) else without).append(name)
    found = {slot: names for slot, names in slots.items() if names}
    if not found:
        raise UserError("no attention has weights; the mechanisms of this model mix without them")
    parts = {"all": [name for names in found.values() for name in names]}
    if len(found) > 1:
        parts |= found
    for slot, names in found.items():
        if len(names) > 1:
            parts |= {f"{slot} {number}": [name] for number, name in enumerate(names, 1)}
    return Parts(parts, without)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that fit a pattern such as `decoder.*`."""
    fits = re.compile(translate(pattern)).match  # fnmatch itself keeps 32,768 patterns in memory
    return [name for name in names if fits(name)]


def _named(pattern: str, known: Mapping[str, object]) -> list[str]:
    found = matching(pattern, known)
    if not found:
        raise UserError(f"no attention is called {pattern}; there are {', '.join(known)}")
    return found
