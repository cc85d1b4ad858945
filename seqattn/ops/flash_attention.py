"""Softmax attention over long sequences on a CPU, in tiles."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqattn.ops.cpu import bf16_is_native, onednn_multiplies, quick_products

_ROWS, _KEYS = 512, 1024
"""The largest tile of a head's scores."""
_SCORES = 1 << 19
"""Scores worked on at once, which stay in a core's cache: of several heads where there are few."""
_FEW = 64  # keys up to which PyTorch's is as quick
_LOWEST = -1e30  # of the maxima: a row of -inf less its maximum is no number
_LOG2_E = math.log2(math.e)


def is_quicker(kind: torch.dtype, keys: int) -> bool:
    """Whether it is quicker than PyTorch's own for numbers of a kind and so many keys."""
    if keys <= _FEW:
        return False
    if kind == torch.bfloat16:
        return bf16_is_native()
    return kind == torch.float32 and onednn_multiplies()


class _Tile(NamedTuple):
    """Some queries of some heads, and some of their keys."""

    sentences: slice
    heads: slice
    rows: slice
    keys: slice

    def of(self, x: Tensor) -> Tensor:
        """Its part of x, broadcastable to (B, H, T, S)."""
        return x[tuple(s if n > 1 else slice(None) for s, n in zip(self, x.shape))]

    def bias(self, bias: Tensor | None, is_causal: bool) -> Tensor | None:
        """Its part of `bias`, or -inf where a later key is hidden: (heads, T or 1, S or 1)."""
        if bias is not None:
            return self.of(bias).expand(*self.shape, -1, -1).flatten(0, 1)
        if not is_causal or self.keys.stop <= self.rows.start + 1:
            return None
        shape = self.rows.stop - self.rows.start, self.keys.stop - self.keys.start
        return torch.full(shape, -torch.inf).triu(self.rows.start - self.keys.start + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Its sentences, and heads of each."""
        return self.sentences.stop - self.sentences.start, self.heads.stop - self.heads.start


def _tiles(q: Tensor, keys: Tensor, is_causal: bool) -> Iterator[tuple[slice, list[_Tile]]]:
    """The tiles of (B, H, T, S), those of the same queries together, and their heads of B*H."""
    (sentences, heads, queries, _), slots = q.shape, keys.shape[2]
    halved = is_causal and 4 * queries > 3 * _ROWS  # so that less lies beyond the diagonal
    rows, columns = min(_ROWS // 2 if halved else _ROWS, queries), min(_KEYS, slots)
    for some, part in _groups(sentences, heads, max(1, _SCORES // (rows * columns))):
        first = some.start * heads + part.start
        flat = slice(first, first + (some.stop - some.start) * (part.stop - part.start))
        for row in range(0, queries, rows):
            last = min(row + rows, queries)
            seen = last if is_causal else slots
            keyed = [slice(at, min(at + columns, seen)) for at in range(0, seen, columns)]
            yield flat, [_Tile(some, part, slice(row, last), own) for own in keyed]


def _groups(sentences: int, heads: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Sentences with all of their heads, or some heads of one sentence: `most` heads at once."""
    step, part = max(1, most // heads), min(heads, most)
    for sentence in range(0, sentences, step):
        for head in range(0, heads, part):
            some = slice(sentence, min(sentence + step, sentences))
            yield some, slice(head, min(head + part, heads))


class _FlashAttention(torch.autograd.Function):
    """Powers are of two, so q is multiplied by scale log2(e)."""

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
        shape, times, tiled = q.shape, q.shape[1] // keys.shape[1], list(_tiles(q, keys, is_causal))
        q, keys, values = (part.flatten(0, 1) for part in (q * (scale * _LOG2_E), keys, values))
        bias = None if bias is None else bias * _LOG2_E
        context = torch.empty_like(q)
        totals = torch.empty(*q.shape[:2], 1, dtype=torch.float32)  # log2 of the sums of powers
        for heads, tiles in tiled:
            rows, own = (heads, tiles[0].rows), _owners(heads, times)
            peak, total, sums = torch.tensor(_LOWEST), torch.tensor(0.0), torch.tensor(0.0)
            for tile in tiles:
                scores = _scores(q[rows], keys[own, tile.keys], tile.bias(bias, is_causal))
                known, peak = peak, scores.amax(dim=-1, keepdim=True).maximum(peak)
                powers = scores.sub_(peak).exp2_()
                with quick_products():
                    made = powers.to(q.dtype).bmm(values[own, tile.keys])
                shrunk = (known - peak).exp2_()
                total = powers.sum(dim=-1, keepdim=True) + total * shrunk
                sums = made if len(tiles) == 1 else made + sums * shrunk
            context[rows] = sums / total
            totals[rows] = peak + total.log2_()
        ctx.save_for_backward(q, keys, values, context, totals)
        ctx.rest = tiled, times, bias, is_causal, scale
        return context.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, keys, values, context, totals = ctx.saved_tensors
        tiled, times, bias, is_causal, scale = ctx.rest
        sentences, gradient = len(gradient), gradient.flatten(0, 1)
        found = [torch.zeros_like(part, dtype=torch.float32) for part in (q, keys, values)]
        of_q, of_keys, of_values = found
        of_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        shares = (gradient.float() * context).sum(dim=-1, keepdim=True)
        for heads, tiles in tiled:
            own = _owners(heads, times)
            for tile in tiles:
                rows, seen = (heads, tile.rows), (own, tile.keys)
                known = keys[seen]
                scores = _scores(q[rows], known, tile.bias(bias, is_causal))
                powers = scores.sub_(totals[rows]).exp2_()
                with quick_products():
                    _add(of_values, seen, powers.to(q.dtype).mT.bmm(gradient[rows]))
                    lost = gradient[rows].bmm(values[seen].mT).float()
                    lost = lost.sub_(shares[rows]).mul_(powers)
                    if of_bias is not None:
                        part = tile.of(of_bias)
                        part += lost.unflatten(0, tile.shape).sum_to_size(part.shape)
                    lost = lost.to(q.dtype)
                    of_q[rows] += lost.bmm(known)
                    _add(of_keys, seen, lost.mT.bmm(q[rows]))
        of_q.mul_(scale)
        of_keys.div_(_LOG2_E)
        gradients = (part.to(q.dtype).unflatten(0, (sentences, -1)) for part in found)
        return *gradients, of_bias, None, None


def _owners(heads: slice, times: int) -> slice | Tensor:
    """The key heads, of B*G, of query heads of B*H, each of which serves `times` of those."""
    return heads if times == 1 else torch.arange(heads.start, heads.stop) // times


def _add(x: Tensor, at: tuple[slice | Tensor, slice], change: Tensor) -> None:
    owners, keys = at
    if isinstance(owners, slice):
        x[owners, keys] += change
    else:  # some of which are the same
        x[:, keys].index_add_(0, owners, change.to(x.dtype))


def _scores(q: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
    with quick_products():
        scores = q.bmm(keys.mT).float()
    return scores if bias is None else scores.add_(bias)


def flash_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """As `scaled_dot_product_attention`, by products that are quicker on some CPUs.

    FlashAttention-2 (Dao 2023, arXiv 2307.08691): scores are made tile by tile and forgotten, in
    the backward pass once more. Products run in the type of q, the softmax in float32. Time
    T * S * Dh, memory linear in T and S beside `bias`.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, G, S, Dh), G dividing H.
        bias: added to the scores, or bool, True = may look; broadcastable to (B, H, T, S), each
            row with something to look at; None for nothing.
        is_causal: query t sees keys up to t alone; without `bias`.
        scale: of the scores.
    """
    if bias is not None:
        visible = bias.dtype == torch.bool
        bias = torch.where(bias, 0.0, -torch.inf) if visible else bias.float()
    out: Tensor = _FlashAttention.apply(q, keys, values, bias, is_causal, scale)  # type: ignore[no-untyped-call]
    return out
