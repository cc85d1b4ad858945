"""Linear attention: weights as products of feature maps of queries and keys."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.kernels.base import Attended, HeadShape, Kernel
from seqattn.attention.kernels.shared.fold_beams import fold_beams, unfold_beams
from seqattn.attention.kernels.shared.groups import per_group
from seqattn.attention.kernels.shared.scan import (
    LOWEST,
    Keys,
    RecurrentCache,
    SummedKeysValues,
    Sums,
    first_chunk,
    merge_sums,
    normalized,
    scan,
    seen_by,
    summed,
)
from seqattn.attention.masks import Mask
from seqattn.checking import Count
from seqattn.ops.precision import wide
from seqattn.positions.base import Position

# tokens mapped at a time, so that intermediate results fit the processor's cache
SEGMENT = 1024


class LinearKernel(Kernel):
    """phi(Q) (phi(K)^T V) / phi(Q) (phi(K)^T 1), phi(x) = elu(x) + 1.

    Katharopoulos et al. 2020, arXiv 2006.16236, eq. 5 to 7; a causal pass scans over chunks, and
    decoding follows eq. 18 to 20. Time T*Dh*D and memory T*D; a causal pass takes additional time
    C*T*D and memory C*T*H for chunks of C tokens. The cache holds (Dh^2 + Dh)*G numbers,
    independent of the length of the past. Bidirectional, causal, cross and incremental.

    Rotary positions are applied before the feature map: weights stay positive and sum to 1, but
    depend on both positions rather than only on their distance. Sums are in at least float32.

    Args:
        chunk: tokens whose weights are materialized together in a causal pass, at least 1. It
            changes speed and memory, not the result.

    Raises:
        UserError: in a call with a user-defined mask.
    """

    abilities = Abilities(
        causal=True,
        cross=True,
        incremental=True,
        hooks=frozenset({"embed", "rotate"}),
        weights=True,
    )

    def __init__(self, shape: HeadShape, chunk: Count = 64) -> None:
        super().__init__(shape)
        self.chunk = chunk

    def map_queries(self, query: Tensor, scale: float) -> Tensor:
        """Map queries to non-negative features: (B, H, T, Dh) -> (B, H, T, M).

        Args:
            query: rotated queries.
            scale: factor on query-key products, for maps that approximate the softmax.
        """
        return elu_plus_one(query)

    def map_keys(self, keys: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
        """Return non-negative features (B, G, S, M), and log scales (B, G, S) without gradient.

        The weight of key j for query i is proportional to exp(log_scale_j) * phi(q_i) . phi(k_j);
        None means log scales of 0.
        """
        return elu_plus_one(keys), None

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        assert cache is None or isinstance(cache, RecurrentCache)
        assert mask.extra is None, "custom masks are not supported"
        beams = query.shape[0] // new.keys.shape[0]
        with torch.autocast(query.device.type, enabled=False):
            q = position.rotate(wide(query), mask.query_positions)
            key_positions = mask.last_keys(new.keys.shape[2])
            k = position.rotate(wide(new.keys), key_positions)
            if beams > 1:
                q = fold_beams(q, beams)
            if mask.real is not None:  # one row per sentence; decoding has one per beam
                real = mask.real.repeat_interleave(k.shape[0] // mask.real.shape[0], dim=0)
                mask = replace(mask, real=real)
            scale = position.score_scale(self.head_dim)
            rotated = KeysValues(k, new.values)
            if self.is_observed or need_weights:
                context, weights = self._with_weights(q, rotated, mask, scale, cache, need_weights)
            elif isinstance(new, SummedKeysValues):
                context, weights = self._over(q, new.sums, scale), None
            else:
                context, weights = self._fast(q, rotated, mask, scale, cache), None
        context = context.to(new.values.dtype)
        if beams == 1:
            return Attended(context, weights)
        weights = None if weights is None else unfold_beams(weights, beams)
        return Attended(unfold_beams(context, beams), weights)

    def prepared(self, source: KeysValues, mask: Mask, position: Position) -> KeysValues:
        with torch.autocast(source.keys.device.type, enabled=False):
            key_positions = mask.key_positions
            rotated = KeysValues(position.rotate(wide(source.keys), key_positions), source.values)
            scale = position.score_scale(self.head_dim)
            return SummedKeysValues.of(source, self._all(rotated, mask, scale).matrix)

    def make_cache(self, beams: int) -> Cache:
        return RecurrentCache(beams)

    def _with_weights(
        self,
        q: Tensor,
        new: KeysValues,
        mask: Mask,
        scale: float,
        cache: RecurrentCache | None,
        need_weights: bool,
    ) -> Attended:
        """Compute the context (B, H, T, Dh), with weights for observers and if requested."""
        (keys,) = self._keys(new, replace(mask, real=None), scale, new.keys.shape[2])
        all_keys = keys if cache is None else cache.remember(keys)
        weights = self.weights(self.map_queries(q, scale), all_keys, mask)
        used = self.edit_and_show(weights, mask.dense)
        if used is None and need_weights and cache is None:
            used = weights
        if used is None or cache is not None:  # `_fast` advances the cache
            context = self._fast(q, new, mask, scale, cache)
        if used is not None:
            context, weights = per_group(used, all_keys.values[..., :-1]), used
        return Attended(context, weights if need_weights else None)

    def _fast(
        self, q: Tensor, new: KeysValues, mask: Mask, scale: float, cache: RecurrentCache | None
    ) -> Tensor:
        is_short = new.keys.shape[2] <= (self.chunk if mask.causal else self.head_dim)
        if is_short and cache is None:
            (keys,) = self._keys(new, mask, scale, new.keys.shape[2])
            see = first_chunk if mask.causal else seen_by
            return normalized(see(self.map_queries(q, scale), keys))
        size = self.chunk * max(1, SEGMENT // self.chunk) if mask.causal else SEGMENT
        segments = q.split(size, dim=2)
        contexts, sums = [], None if cache is None else cache.sums
        if mask.causal:
            for part, keys in zip(segments, self._keys(new, mask, scale, size)):
                out, sums = scan(self.map_queries(part, scale), keys, sums, self.chunk)
                contexts.append(normalized(out))
        else:
            sums = self._all(new, mask, scale)
            for part in segments:
                contexts.append(self._over(part, sums.matrix, scale))
        if cache is not None and sums is not None:
            cache.advance(sums, q.shape[2])
        return torch.cat(contexts, dim=2)

    def _over(self, q: Tensor, sums: Tensor, scale: float) -> Tensor:
        """Return the context of queries over sums (B, G, M, Dh+1)."""
        return normalized(per_group(self.map_queries(q, scale), sums))

    def _all(self, new: KeysValues, mask: Mask, scale: float) -> Sums:
        """Return sums over all keys, computed segment by segment."""
        return reduce(merge_sums, map(summed, self._keys(new, mask, scale, SEGMENT)))

    def _keys(self, new: KeysValues, mask: Mask, scale: float, size: int) -> Iterator[Keys]:
        """Yield mapped keys and their values in segments of `size`, with weight 0 on padding."""
        count = new.keys.shape[2]
        padding = None if mask.real is None else ~mask.real[:, None, -count:]  # (B, 1, S)
        parts = _segments(new.keys, size), _segments(new.values, size)
        hidden = repeat(None) if padding is None else _segments(padding, size)
        for k, v, blank in zip(*parts, hidden):
            mapped, log_scale = self.map_keys(k, scale)
            values = torch.cat((wide(v), mapped.new_ones(*v.shape[:-1], 1)), dim=-1)
            if blank is not None:
                values = values.masked_fill(blank[..., None], 0.0)
                log_scale = None if log_scale is None else log_scale.masked_fill(blank, LOWEST)
            yield Keys(mapped, values, log_scale)

    def weights(self, queries: Tensor, keys: Keys, mask: Mask) -> Tensor:
        """Materialize the weights (B, H, T, S); rows sum to 1, or to 0 without visible keys.

        Takes mapped queries (B, H, T, M) and keys (B, G, S, M). With several beams, batch rows are
        hypotheses in decoding; in cross-attention beams are folded into T.
        """
        weights = per_group(queries, keys.keys.mT)
        allowed = mask.dense()
        hidden = torch.zeros_like(weights, dtype=torch.bool) if allowed is None else ~allowed
        if keys.log_scale is not None:
            groups = self.num_heads // self.num_kv_heads
            scale = keys.log_scale.repeat_interleave(groups, dim=1)[:, :, None]  # (B, H, 1, S)
            scale = scale.expand_as(weights).masked_fill(hidden, LOWEST)
            weights = weights * (scale - scale.amax(dim=3, keepdim=True)).exp()
        weights = weights.masked_fill(hidden, 0.0)
        total = weights.sum(dim=3, keepdim=True)
        return weights / total.masked_fill(total == 0, 1.0)


def _segments(x: Tensor, size: int) -> Sequence[Tensor]:
    """Split the tokens of (B, G, S, ...); one segment stays whole, also of a length unknown yet."""
    return (x,) if size >= x.shape[2] else x.split(size, dim=2)


class _EluPlusOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = ops.exp_(x.clamp(-30.0, 0.0)).add_(x.clamp(min=0.0))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return gradient * y.clamp(max=1.0)  # y is exp(x) where y < 1, else x + 1


def elu_plus_one(x: Tensor) -> Tensor:
    """Return elu(x) + 1 (eq. 7), precise for negative x and always positive.

    Below -30 it is exp(-30), so that sums of products are never 0 in float32.
    """
    if torch.compiler.is_compiling():
        return x.clamp(-30.0, 0.0).exp() + x.relu()
    y: Tensor = _EluPlusOne.apply(x)  # type: ignore[no-untyped-call]
    return y
