"""Kernels with materialized weights, as written in the papers."""

from abc import abstractmethod

import torch
from torch import Tensor

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.cache import Cache, GrowingCache, KeysValues
from seqattn.attention.fixed_cache import FixedCache
from seqattn.attention.kernels.base import Attended, Kernel
from seqattn.attention.kernels.shared.fold_beams import fold_beams, fold_mask, unfold_beams
from seqattn.attention.kernels.shared.groups import per_group
from seqattn.attention.masks import Mask
from seqattn.positions.base import Position


class WeightedKernel(Kernel):
    """normalize(Q K^T / sqrt(Dh)) V, with materialized weights.

    A subclass implements `normalize` for training, decoding and `capture`. Time T*S*D, memory T*S
    per head, cache 2*G*Dh numbers per token. Bidirectional, causal, cross and incremental.
    """

    abilities = Abilities(
        causal=True,
        cross=True,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
        normalized=False,
        crop=True,
    )

    @abstractmethod
    def normalize(self, scores: Tensor) -> Tensor:
        """Return the weights of scores (B, H, T, S), which are -inf on hidden keys.

        Every row has a finite score: queries without visible keys get weights of 0 afterwards. A
        subclass whose weights sum to 1 declares it in its `abilities` (`normalized=True`).
        """

    def across_heads(self, weights: Tensor) -> Tensor:
        """Combine the weights (B, H, T, S) of heads, which are 0 on hidden keys."""
        return weights

    def weights(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """Return the weights (B, H, T, S), 0 on hidden keys.

        Args:
            q: rotated queries (B, H, T, Dh).
            keys: rotated keys (B, G, S, Dh).
            mask: which keys each query may attend to.
            position: the layer's position scheme.
        """
        scores = self._products(q, keys, mask, position)
        term = self._score_term(q, keys, mask, position)
        if term is not None:
            scores = scores + term
        visible = mask.visible
        if visible is None:
            return self.across_heads(self.normalize(scores))
        hidden, empty = ~visible.keys, visible.empty_rows
        weights = self.normalize(scores.masked_fill(hidden, -torch.inf))
        weights = weights if empty is None else weights.masked_fill(empty, 0.0)
        combined = self.across_heads(weights)
        if combined is weights or hidden.dim() < 3 or hidden.shape[-3] == 1:
            return combined
        return combined.masked_fill(hidden if empty is None else hidden | empty, 0.0)

    def _products(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor:
        """Return scaled products of queries and keys: (B, H, T, S)."""
        q = ops.float32_on_cpu(q) * position.score_scale(self.head_dim)
        return per_group(q, keys.mT, ops.exact_product)

    def _score_term(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """Return the position scheme's term added to the products, or None."""
        if "score_term" not in position.hooks:
            return None
        return position.score_term(q, keys, mask.query_positions, mask.key_positions)

    def _weighted(self, weights: Tensor, values: Tensor, mask: Mask, position: Position) -> Tensor:
        """Return the sum of values (B, G, S, Dh) weighted by (B, H, T, S): (B, H, T, Dh)."""
        dropped = ops.drop(weights, self.dropout) if self.training else weights
        context = per_group(dropped, values, ops.exact_product).to(values.dtype)
        term = self.value_term(dropped.to(values.dtype), mask, position)
        return context if term is None else context + term

    def value_term(self, weights: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """Return the position term of the context (B, H, T, Dh), linear in the weights, or None."""
        if "value_term" not in position.hooks:
            return None
        return position.value_term(weights, mask.query_positions, mask.key_positions)

    def _context(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """Return the context (B, H, T, Dh) of rotated queries and keys, for unobserved weights."""
        return self._weighted(self.weights(q, keys, mask, position), values, mask, position)

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        if cache is not None:
            return Attended(self._decoded(query, new, mask, position, cache))
        q, keys = self._rotated(query, new.keys, mask, position)
        return self._attend(q, keys, new.values, mask, position, need_weights)

    def make_cache(self, beams: int) -> Cache:
        return GrowingCache(beams)

    def _rotated(
        self, query: Tensor, keys: Tensor, mask: Mask, position: Position
    ) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys by their positions; new keys are the last of the mask's."""
        if "rotate" not in position.hooks:
            return query, keys
        key_positions = mask.last_keys(keys.shape[2])
        return position.rotate(query, mask.query_positions), position.rotate(keys, key_positions)

    def _decoded(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position, cache: Cache
    ) -> Tensor:
        """Append `new` to the cache, and return the context over the complete past."""
        assert isinstance(cache, GrowingCache | FixedCache)
        q, keys = self._rotated(query, new.keys, mask, position)
        keys, values, slots = cache.append(KeysValues(keys, new.values))
        return self._attend(q, keys, values, mask, position, slots=slots).context

    def _attend(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask,
        position: Position,
        need_weights: bool = False,
        slots: BeamSlots | None = None,
    ) -> Attended:
        """Attend from rotated queries to rotated keys (B, G, S, Dh), or keys of a cache."""
        beams = q.shape[0] // keys.shape[0]
        if beams > 1:
            q = fold_beams(q, beams)
        if slots is not None:
            mask = fold_mask(mask, beams, slots)
        mask, used = self._narrowed(mask), None
        need_weights = need_weights and self.abilities.copies
        if self.is_observed or need_weights:
            weights = self.weights(q, keys, mask, position)
            used = self.edit_and_show(weights, mask.dense)
            used = weights if used is None and need_weights else used
        if used is not None:
            context = self._weighted(used, values, mask, position)
        else:
            context = self._context(q, keys, values, mask, position)
        returned = used if need_weights else None
        if beams == 1:
            return Attended(context, returned)
        returned = None if returned is None else unfold_beams(returned, beams)
        return Attended(unfold_beams(context, beams), returned)

    def _narrowed(self, mask: Mask) -> Mask:
        """Return the mask without the keys that the mechanism hides."""
        return mask
