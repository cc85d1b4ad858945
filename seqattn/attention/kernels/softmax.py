"""Softmax attention: the dense kernel, on the fused implementations of PyTorch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities, Kernel
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
        bidirectional=True,
        causal=True,
        cross=True,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
    )

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        rows, _, steps, _ = query.shape
        q = position.rotate(query, mask.query_positions)
        keys, values = position.rotate(new.keys, mask.key_positions[..., -steps:]), new.values
        ancestry = None
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            keys, values, ancestry = cache.append(KeysValues(keys, values))
        beams = rows // keys.shape[0]
        if beams > 1:
            q = fold_beams(q, beams)
            mask = fold_mask(mask, beams, ancestry)
        context = self._attend(q, keys, values, mask, position)
        return context if beams == 1 else unfold_beams(context, beams)

    def with_weights(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position
    ) -> tuple[Tensor, Tensor]:
        beams = query.shape[0] // new.keys.shape[0]
        q = position.rotate(query, mask.query_positions)
        keys = position.rotate(new.keys, mask.key_positions)
        if beams > 1:
            q, mask = fold_beams(q, beams), fold_mask(mask, beams, None)
        weights = self.weights(q, keys, mask, position)
        if self.observer is not None:
            self.observer(weights)
        context = self._weighted(weights, new.values, mask, position)
        if beams == 1:
            return context, weights
        return unfold_beams(context, beams), unfold_beams(weights, beams)

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """The context (B, H, T, Dh) of q (B, H, T, Dh) over keys and values (B, G, S, Dh)."""
        if self.observer is not None:
            weights = self.weights(q, keys, mask, position)
            self.observer(weights)
            if self.keep_weight_gradients:
                return self._weighted(weights, values, mask, position)
        if "value_term" in position.hooks or _few(q):
            return self._weighted(self.weights(q, keys, mask, position), values, mask, position)
        bias = position.score_term(q, keys, mask.query_positions, mask.key_positions)
        is_causal = mask.is_plain_causal and bias is None
        visible = None if is_causal else mask.visible
        if visible is not None:
            bias = visible.keys if bias is None else bias.masked_fill(~visible.keys, -torch.inf)
        context = fused_attention(
            q,
            keys,
            values,
            bias,
            is_causal=is_causal,
            dropout=self.dropout if self.training else 0.0,
            scale=position.score_scale(self.head_dim),
        )
        if visible is None or visible.alone is None:
            return context
        return context.masked_fill(visible.alone, 0.0)

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """The weights written out: (B, H, T, S), rows sum to 1, or to 0 with nothing to see."""
        scaled = q * position.score_scale(self.head_dim)
        scores = per_group(scaled, keys.transpose(2, 3))
        term = position.score_term(q, keys, mask.query_positions, mask.key_positions)
        if term is not None:
            scores = scores + term
        visible = mask.visible
        if visible is None:
            return self.normalise(scores)
        weights = self.normalise(scores.masked_fill(~visible.keys, -torch.inf))
        return weights if visible.alone is None else weights.masked_fill(visible.alone, 0.0)

    def normalise(self, scores: Tensor) -> Tensor:
        """Weights of scores (B, H, T, S), -inf on hidden keys; every row has a finite score."""
        return scores.softmax(dim=-1)

    def _weighted(self, weights: Tensor, values: Tensor, mask: Mask, position: Position) -> Tensor:
        dropped = F.dropout(weights, self.dropout, self.training)
        context = per_group(dropped, values)
        term = position.value_term(dropped, mask.query_positions, mask.key_positions)
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
