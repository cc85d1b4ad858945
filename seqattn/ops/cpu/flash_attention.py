"""Softmax attention over long sequences on a CPU, in tiles."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.ops import second_derivatives
from seqattn.ops.cpu.onednn import quick_products
from seqattn.ops.cpu.short_attention import plain_attention
from seqattn.ops.gpu import for_all_heads
from seqattn.ops.precision import LOG2_E

_ROWS, _KEYS = 512, 1024
"""Maximum rows and keys of a tile of one head's scores."""
_SCORES = 1 << 19
"""Scores processed at once, which fit into a core's cache: of several heads if each has few."""
_LOWEST = -1e30  # lower bound of the maxima: -inf minus -inf would be NaN


class _Heads(NamedTuple):
    """Indices of a group: all heads of several sentences, or several heads of one."""

    sentences: slice
    heads: slice

    def of(self, x: Tensor) -> Tensor:
        """Return the group's part of x (B, H, ...): (heads, ...)."""
        return x[self.sentences, self.heads].flatten(0, 1)

    def apart(self, x: Tensor) -> Tensor:
        """Return the group's x (heads, ...) with a sentence axis: (sentences, heads, ...)."""
        return x.unflatten(0, (self.sentences.stop - self.sentences.start, -1))

    def bias(self, bias: Tensor, rows: slice, keys: slice) -> Tensor:
        """Return a tile of the group's `bias`, broadcastable to (sentences, heads, rows, keys)."""
        at = (self.sentences, self.heads, rows, keys)
        return bias[tuple(index if n > 1 else slice(None) for index, n in zip(at, bias.shape))]


class _Tiles:
    """Partition of scores (B, H, T, S) into groups of heads and tiles.

    Args:
        q: (B, H, T, Dh).
        keys: (B, H, S, Dh).
        bias: as in `flash_attention`, in log2 units; or None.
        is_causal: as in `flash_attention`.
    """

    def __init__(self, q: Tensor, keys: Tensor, bias: Tensor | None, is_causal: bool) -> None:
        (self.sentences, self.heads, queries, _), slots = q.shape, keys.shape[2]
        self.bias, self.is_causal = bias, is_causal
        halved = is_causal and 4 * queries > 3 * _ROWS  # to waste less beyond the diagonal
        rows, columns = min(_ROWS // 2 if halved else _ROWS, queries), min(_KEYS, slots)
        self.together = max(1, _SCORES // (rows * columns))
        self.tiles = []
        """Query ranges, each with the ranges of keys that it attends to."""
        for first in range(0, queries, rows):
            last = min(first + rows, queries)
            end = last if is_causal else slots
            parts = [slice(at, min(at + columns, end)) for at in range(0, end, columns)]
            self.tiles.append((slice(first, last), parts))

    def groups(self) -> Iterator[_Heads]:
        """Yield the groups of heads that are processed at once."""
        step, part = max(1, self.together // self.heads), min(self.heads, self.together)
        for sentence in range(0, self.sentences, step):
            some = slice(sentence, min(sentence + step, self.sentences))
            for head in range(0, self.heads, part):
                yield _Heads(some, slice(head, min(head + part, self.heads)))

    def scores(self, heads: _Heads, q: Tensor, keys: Tensor, rows: slice, columns: slice) -> Tensor:
        """Return the scores of a tile: (heads, rows, keys), in log2 units."""
        with quick_products():
            scores = q[:, rows].bmm(keys[:, columns].mT)
        if self.bias is not None:
            heads.apart(scores).add_(heads.bias(self.bias, rows, columns))
        elif self.is_causal and columns.stop > rows.start + 1:
            hidden = scores.new_full(scores.shape[1:], -torch.inf)
            scores.add_(hidden.triu_(rows.start - columns.start + 1))
        return scores


class _FlashAttention(torch.autograd.Function):
    """Autograd function in powers of two, so q is multiplied by scale * log2(e)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor | None,
        is_causal: bool,
        scale: float,
    ) -> Tensor:
        tiles = _Tiles(q, keys, None if bias is None else bias * LOG2_E, is_causal)
        context = torch.empty_like(q)
        totals = q.new_empty(*q.shape[:3], 1)  # log2 of the sums of powers
        for heads in tiles.groups():
            of_q = heads.of(q) * (scale * LOG2_E)
            of_keys, of_values = heads.of(keys), heads.of(values)
            for rows, parts in tiles.tiles:
                peak, total, sums = torch.tensor(_LOWEST), torch.tensor(0.0), torch.tensor(0.0)
                for columns in parts:
                    scores = tiles.scores(heads, of_q, of_keys, rows, columns)
                    old_peak, peak = peak, scores.amax(dim=-1, keepdim=True).maximum(peak)
                    powers = scores.sub_(peak).exp2_()
                    with quick_products():
                        partial_sums = powers.bmm(of_values[:, columns])
                    shrunk = (old_peak - peak).exp2_()
                    total = powers.sum(dim=-1, keepdim=True) + total * shrunk
                    sums = partial_sums if len(parts) == 1 else partial_sums + sums * shrunk
                at = heads.sentences, heads.heads, rows
                context[at] = heads.apart(sums / total)
                totals[at] = heads.apart(peak + total.log2_())
        learnt = bias if ctx.needs_input_grad[3] else None
        ctx.save_for_backward(q, keys, values, learnt, context, totals)
        ctx.tiles, ctx.scale = tiles, scale
        return context

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tiles, scale = ctx.tiles, ctx.scale
        q, keys, values, learnt, context, totals = ctx.saved_tensors
        if second_derivatives.creates_graph():
            constant = None if tiles.bias is None else tiles.bias / LOG2_E
            plain = partial(_written_out, is_causal=tiles.is_causal, scale=scale)
            inputs = (q, keys, values, constant if learnt is None else learnt)
            return *second_derivatives.gradients(plain, inputs, gradient), None, None
        gradients = [torch.empty_like(part) for part in (q, keys, values)]
        of_bias = torch.zeros_like(tiles.bias) if ctx.needs_input_grad[3] else None
        for heads in tiles.groups():
            group = heads.of(q) * (scale * LOG2_E), heads.of(keys), heads.of(values)
            change, total = heads.of(gradient), heads.of(totals)
            share = (change * heads.of(context)).sum(dim=-1, keepdim=True)
            of_q, of_keys, of_values = map(torch.zeros_like, group)
            for rows, parts in tiles.tiles:
                for columns in parts:
                    scores = tiles.scores(heads, group[0], group[1], rows, columns)
                    powers = scores.sub_(total[:, rows]).exp2_()
                    with quick_products():
                        of_values[:, columns] += powers.mT.bmm(change[:, rows])
                        of_scores = change[:, rows].bmm(group[2][:, columns].mT)
                        of_scores = of_scores.sub_(share[:, rows]).mul_(powers)
                        if of_bias is not None:
                            part = heads.bias(of_bias, rows, columns)
                            part += heads.apart(of_scores).sum_to_size(part.shape)
                        of_q[:, rows] += of_scores.bmm(group[1][:, columns])
                        of_keys[:, columns] += of_scores.mT.bmm(group[0][:, rows])
            group = of_q.mul_(scale), of_keys.div_(LOG2_E), of_values
            for full, part in zip(gradients, group, strict=True):
                full[heads.sentences, heads.heads] = heads.apart(part)
        return *gradients, of_bias, None, None


def _written_out(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    if is_causal:
        hidden = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).triu(1)
        bias = torch.where(hidden, -torch.inf, 0.0)
    return plain_attention(q, keys, values, bias, scale)


def flash_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Compute `scaled_dot_product_attention` with products that are faster on some CPUs.

    FlashAttention-2 (Dao 2023, arXiv 2307.08691): scores are computed tile by tile, and recomputed
    in the backward pass. Time T * S * Dh, memory linear in T and S besides `bias`.

    Args:
        q: float32 (B, H, T, Dh).
        keys, values: float32 (B, G, S, Dh), G dividing H.
        bias: added to the scores, or bool, True = may attend; broadcastable to (B, H, T, S), with
            at least one visible key in each row; None for no bias.
        is_causal: query t attends only to keys up to t; excludes `bias`.
        scale: factor on the scores.
    """
    keys, values = (for_all_heads(part, q.shape[1]) for part in (keys, values))
    if bias is not None:
        visible = bias.dtype == torch.bool
        bias = torch.where(bias, 0.0, -torch.inf) if visible else bias.float()
        bias = bias[(None,) * (4 - bias.dim())]
    out: Tensor = _FlashAttention.apply(q, keys, values, bias, is_causal, scale)  # type: ignore[no-untyped-call]
    return out
