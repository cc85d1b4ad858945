"""Interventions of a request, for `seqattn.analysis.intervene`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqattn.analysis.capture import makers, place_of
from seqattn.analysis.intervene import (
    intervene,
    matching,
    permuted,
    uniform,
    without_heads,
    without_keys,
)
from seqattn.attention.observation import Edit
from seqattn.errors import UserError
from seqattn.extras.serve.schemas import Intervention, WeightEdit


@contextmanager
def intervened(
    model: nn.Module, request: Intervention | None, beams: int | None = None
) -> Iterator[None]:
    """Apply a request's interventions to the model, for one sentence.

    Args:
        model: any module that holds attentions.
        request: interventions; None for none.
        beams: number of hypotheses of a search, whose targets are read token by token; None for
            passes over a complete target.

    Raises:
        UserError: if names are unknown, heads or keys cannot be edited, or a search ends before a
            step to edit.
    """
    if request is None:
        yield
        return
    _check_keys(model, request, beams)
    edits = [_WeightSet(one, beams) for one in request.weights]
    weights: list[tuple[str, Edit]] = [
        *((name, uniform) for name in request.uniform),
        *((name, permuted(request.seed)) for name in request.permuted),
        *((name, without_heads(*heads)) for name, heads in request.without_heads.items()),
        *((name, without_keys(*keys)) for name, keys in request.without_keys.items()),
        *((edit.request.attention, edit) for edit in edits),
    ]
    with intervene(model, weights, request.gates):
        yield
    for edit in edits if beams is not None else ():
        if not edit.reached:
            at = f"step {edit.request.step} of {edit.request.attention}"
            raise UserError(f"intervene.weights: {at} was not reached: the output ended earlier")


def _check_keys(model: nn.Module, request: Intervention, beams: int | None) -> None:
    """Raise UserError for unknown attentions, and for keys that several beams share."""
    names = [name for name, _ in makers(model)]
    for edit in request.weights:
        if edit.attention not in names:
            raise UserError(f"unknown attention {edit.attention}; choose from {', '.join(names)}")
    if (beams or 1) == 1:
        return
    for pattern in (*request.without_keys, *(edit.attention for edit in request.weights)):
        for name in matching(pattern, names):
            if place_of(name)[0] == "decoder":
                raise UserError(
                    f"beams share the keys of {name}; use generation=greedy to edit them"
                )


class _WeightSet:
    """Edit of one weight of one row; counts the rows that pass."""

    def __init__(self, request: WeightEdit, beams: int | None) -> None:
        self.request = request
        in_steps = beams is not None and not request.attention.startswith("encoder")
        self.beams = beams if in_steps else None
        self.seen = 0
        self.reached = False

    def __call__(self, weights: Tensor, visible: Tensor | None) -> Tensor:
        row, rows = self.request.step - self.seen, weights.shape[2]
        self.seen += rows if self.beams is None else 1
        if self.beams is not None and row == 0:
            return self._set(weights, visible, slice(None))
        if self.beams is None and 0 <= row < rows:
            return self._set(weights, visible, slice(row, row + 1))
        return weights

    def _set(self, weights: Tensor, visible: Tensor | None, rows: slice) -> Tensor:
        self.reached = True
        key, heads = self.request.key, self._heads(weights.shape[1])
        past = self.request.step + 1
        is_own = self.beams is not None and place_of(self.request.attention)[0] == "decoder"
        if is_own and weights.shape[3] != past:
            raise self._refusal(f"its cache retains only {weights.shape[3]} of {past} tokens")
        if key >= weights.shape[3]:
            raise self._refusal(f"key must be from 0 to {weights.shape[3] - 1}, got {key}")
        if visible is not None:
            seen = visible.expand_as(weights)[:, heads, rows, key]
            if not bool(seen.any()):
                raise self._refusal(f"step {self.request.step} cannot attend to key {key}")
        row = weights[:, heads, rows]  # (B, h, t, S)
        total = row.sum(dim=-1, keepdim=True)
        others = row.index_fill(-1, torch.tensor([key], device=row.device), 0.0)
        least = torch.finfo(row.dtype).tiny
        scale = (1 - self.request.weight) / others.sum(dim=-1, keepdim=True).clamp(min=least)
        result = weights.clone()
        result[:, heads, rows] = others * total * scale
        result[:, heads, rows, key] = total[..., 0] * self.request.weight
        return result

    def _heads(self, count: int) -> slice:
        head = self.request.head
        if head is None:
            return slice(None)
        if head >= count:
            raise self._refusal(f"head must be from 0 to {count - 1}, got {head}")
        return slice(head, head + 1)

    def _refusal(self, line: str) -> UserError:
        return UserError(f"intervene.weights of {self.request.attention}: {line}")
