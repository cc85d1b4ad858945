"""Softmax attention: the dense kernel, on the fused implementations of PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities, Attended, Kernel
from seqattn.attention.cache import Cache, GrowingCache, KeysValues
from seqattn.attention.kernels.parts.fused import fused_attention
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class SoftmaxKernel(Kernel):
    """softmax(Q K^T / sqrt(Dh)) V (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).

    Runs on `scaled_dot_product_attention`, which never stores the weights (Dao et al. 2022, arXiv
    2205.14135). Time T*S*D, memory linear in T and S, cache 2*G*Dh numbers a token. Bidirectional,
    causal, cross and incremental.
    """

    abilities = Abilities(
        causal=True,
        cross=True,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
        crop=True,
    )

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        q, new = self._rotated(query, new, mask, position)
        seen, ancestry = new, None
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            *past, ancestry = cache.append(new)
            seen = KeysValues(*past)
        beams = len(q) // len(seen.keys)
        if beams > 1:
            q = fold_beams(q, beams)
            mask = fold_mask(mask, beams, ancestry)
        need_weights = need_weights and self.abilities.copies
        context, weights = self._attend(q, seen, mask, position, need_weights)
        if beams > 1:
            context = unfold_beams(context, beams)
            weights = None if weights is None else unfold_beams(weights, beams)
        return Attended(context, weights)

    def _rotated(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position
    ) -> tuple[Tensor, KeysValues]:
        """Queries and keys turned by their positions; the new keys are the last of the mask's."""
        places = mask.key_positions[..., -new.keys.shape[2] :]
        keys = KeysValues(position.rotate(new.keys, places), new.values)
        return position.rotate(query, mask.query_positions), keys

    def _attend(
        self,
        q: Tensor,
        seen: KeysValues,
        mask: Mask,
        position: Position,
        need_weights: bool = False,
    ) -> Attended:
        """As `forward`, of q (B, H, T, Dh) over keys and values (B, G, S, Dh)."""
        if self.observer is not None or need_weights:
            weights = self.weights(q, seen.keys, mask, position)
            if self.observer is not None:
                self.observer(weights)
            if need_weights or self.keep_weight_gradients:
                context = self._weighted(weights, seen.values, mask, position)
                return Attended(context, weights if need_weights else None)
        return Attended(self._fast(q, seen, mask, position))

    def _slow(self, q: Tensor, seen: KeysValues, mask: Mask, position: Position) -> Tensor:
        """The context alone, by its weights."""
        return self._weighted(self.weights(q, seen.keys, mask, position), seen[1], mask, position)

    def _fast(self, q: Tensor, seen: KeysValues, mask: Mask, position: Position) -> Tensor:
        """The context alone, without weights where that can be."""
        if "value_term" in position.hooks or _few(q):
            return self._slow(q, seen, mask, position)
        bias = self._term(q, seen.keys, mask, position)
        is_causal = mask.is_plain_causal and bias is None
        visible = None if is_causal else mask.visible
        if visible is not None:
            bias = visible.keys if bias is None else bias.masked_fill(~visible.keys, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        scale = position.score_scale(self.head_dim)
        context = fused_attention(q, *seen, bias, is_causal=is_causal, dropout=dropout, scale=scale)
        if visible is None or visible.alone is None:
            return context
        return context.masked_fill(visible.alone, 0.0)

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """The weights written out: (B, H, T, S), rows sum to 1, or to 0 with nothing to see."""
        scores = self._products(q, keys, mask, position)
        term = self._term(q, keys, mask, position)
        if term is not None:
            scores = scores + term
        visible = mask.visible
        if visible is None:
            return self.normalise(scores)
        weights = self.normalise(scores.masked_fill(~visible.keys, -torch.inf))
        return weights if visible.alone is None else weights.masked_fill(visible.alone, 0.0)

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """Scaled products of queries and keys: (B, H, T, S)."""
        return per_group(q * position.score_scale(self.head_dim), keys.transpose(2, 3))

    def _term(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """What the position scheme adds to them."""
        return position.score_term(q, keys, mask.query_positions, mask.key_positions)

    def _value_term(self, weights: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """What it adds to the context (B, H, T, Dh)."""
        return position.value_term(weights, mask.query_positions, mask.key_positions)

    def normalise(self, scores: Tensor) -> Tensor:
        """Weights of scores (B, H, T, S), -inf on hidden keys; every row has a finite score."""
        return scores.softmax(dim=-1)

    def _weighted(self, weights: Tensor, values: Tensor, mask: Mask, position: Position) -> Tensor:
        dropped = F.dropout(weights, self.dropout, self.training)
        context = per_group(dropped, values)
        term = self._value_term(dropped, mask, position)
        return context if term is None else context + term

    def make_cache(self, beams: int) -> Cache:
        return GrowingCache(beams)


def _few(q: Tensor) -> bool:
    """Whether so few queries decode that the fused kernel's overhead exceeds what it saves."""
    return q.shape[2] <= 8 and q.device.type == "cpu" and not torch.is_grad_enabled()


def per_group(x: Tensor, shared: Tensor) -> Tensor:
    """x @ shared where the heads of a group share a matrix, which is not repeated for them.

    Args:
        x: (B, H, T, M).
        shared: (B, G, M, N), G dividing H.

    Returns:
        (B, H, T, N).
    """
    heads, groups = x.shape[1], shared.shape[1]
    if heads == groups:
        return x @ shared
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, H, T, M) -> (B, G, H/G*T, M)
    return (rows @ shared).unflatten(2, (heads // groups, -1)).flatten(1, 2)  # -> (B, H, T, N)


def fold_beams(x: Tensor, beams: int) -> Tensor:
    """The beams of a sentence become query positions: (B*K, H, T, Dh) -> (B, H, K*T, Dh)."""
    x = x.unflatten(0, (-1, beams))  # (B, K, H, T, Dh)
    return x.transpose(1, 2).flatten(2, 3)  # (B, H, K, T, Dh) -> (B, H, K*T, Dh)


def unfold_beams(x: Tensor, beams: int) -> Tensor:
    """Undoes `fold_beams`: (B, H, K*T, Dh) -> (B*K, H, T, Dh)."""
    x = x.unflatten(2, (beams, -1))  # (B, H, K, T, Dh)
    return x.transpose(1, 2).flatten(0, 1)  # (B, K, H, T, Dh) -> (B*K, H, T, Dh)


def fold_mask(mask: Mask, beams: int, ancestry: Tensor | None) -> Mask:
    """The mask of folded queries.

    Args:
        mask: of B*K rows of T queries; its `real` has B rows for cross-attention, and B rows over
            L tokens for self-attention.
        beams: K.
        ancestry: (B, K, L*K), which slots of the cache each beam descends from; None for
            cross-attention, where every beam sees the whole source.

    Returns:
        A mask of B rows of K*T queries over S keys, or over L*K slots.
    """
    steps = mask.queries
    queries = mask.query_positions
    queries = queries.unflatten(0, (-1, beams)).flatten(1) if queries.dim() == 2 else queries
    queries = queries.repeat(beams) if queries.dim() == 1 else queries
    if ancestry is not None and mask.extra is not None:
        raise UserError("a mask of your own cannot be joined while decoding with several beams")
    if ancestry is None and mask.extra is None and not mask.causal:
        return mask  # the same keys for every query
    if ancestry is None:
        return Mask(queries, mask.key_positions, mask.real, extra=mask.extra)
    seen = ancestry[:, :, None, :]  # (B, K, 1, L*K)
    if steps > 1:
        slots = mask.keys
        triangle = torch.ones(steps, slots, dtype=torch.bool, device=seen.device)
        triangle = triangle.tril(slots - steps).repeat_interleave(beams, dim=1)  # (T, L*K)
        seen = seen & triangle
    keys = mask.key_positions
    keys = keys.unflatten(0, (-1, beams))[:, 0] if keys.dim() == 2 else keys
    real = None if mask.real is None else mask.real.repeat_interleave(beams, dim=1)
    return Mask(
        queries, keys.repeat_interleave(beams, dim=-1), real, extra=seen.flatten(1, 2)[:, None]
    )
