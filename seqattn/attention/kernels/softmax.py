"""Softmax attention: the dense kernel, on the fused implementations of PyTorch."""

from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.base import Abilities
from seqattn.attention.cache import BeamSlots, Cache, GrowingCache, KeysValues
from seqattn.attention.kernels.base import Attended, Kernel
from seqattn.attention.kernels.parts.folding import fold_beams, fold_mask, unfold_beams
from seqattn.attention.masks import Mask
from seqattn.ops.dropout import drop
from seqattn.ops.flash_attention import flash_attention, tiles_are_quicker
from seqattn.ops.gpu import for_all_heads, groups_are_fused
from seqattn.ops.precision import wide
from seqattn.ops.products import product
from seqattn.ops.row_products import row_products
from seqattn.ops.short_attention import longest, short_attention
from seqattn.ops.short_softmax import softmax
from seqattn.positions.base import Position

FEW = 8
"""Queries up to which what begins a product, or a fused kernel, takes longer than it saves."""
_BY_WEIGHTS = "normalise", "weights", "value_term", "_products", "_weighted"
"""Methods that a fused kernel does not call."""


class SoftmaxKernel(Kernel):
    """softmax(Q K^T / sqrt(Dh)) V (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).

    Runs on `scaled_dot_product_attention`, which never stores the weights (Dao et al. 2022, arXiv
    2205.14135). Time T*S*D, memory linear in T and S, cache 2*G*Dh numbers a token. Bidirectional,
    causal, cross and incremental.

    A subclass that overrides `normalise`, or another method that a fused kernel does not call, has
    its weights written out in every pass. It must set `abilities` too if they still sum to 1.
    """

    written_out: ClassVar[bool] = False  # whether the weights are, in every pass
    abilities = Abilities(
        causal=True,
        cross=True,
        incremental=True,
        hooks=frozenset({"embed", "rotate", "score_term", "value_term"}),
        dropout=True,
        weights=True,
        crop=True,
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.written_out = any(_is_later(cls, name, "_fast") for name in _BY_WEIGHTS)
        if any(_is_later(cls, name, "abilities") for name in ("normalise", "weights")):
            cls.abilities = replace(cls.abilities, normalised=False)

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
        """Queries and keys turned by their positions; new keys are the last of the mask's."""
        places = mask.last_keys(keys.shape[2])
        return position.rotate(query, mask.query_positions), position.rotate(keys, places)

    def _decoded(
        self, query: Tensor, new: KeysValues, mask: Mask, position: Position, cache: Cache
    ) -> Tensor:
        """The context over all of the past, to which `new` is added."""
        assert isinstance(cache, GrowingCache)
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
        """As `forward` of rotated queries and keys, these (B, G, S, Dh), or as a cache has them."""
        beams = q.shape[0] // keys.shape[0]
        if beams > 1:
            q = fold_beams(q, beams)
            mask = mask if slots is None else fold_mask(mask, beams, slots)
        mask, used = self._narrowed(mask), None
        need_weights = need_weights and self.abilities.copies
        if self.watched or need_weights:
            weights = self.weights(q, keys, mask, position)
            used = self.settled(weights, mask.dense)
            used = weights if used is None and need_weights else used
        if used is not None:
            context = self._weighted(used, values, mask, position)
        else:
            context = self._fast(q, keys, values, mask, position)
        shown = used if need_weights else None
        if beams == 1:
            return Attended(context, shown)
        shown = None if shown is None else unfold_beams(shown, beams)
        return Attended(unfold_beams(context, beams), shown)

    def _narrowed(self, mask: Mask) -> Mask:
        """The mask with what the mechanism hides besides."""
        return mask

    def _slow(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """The context alone, by its weights."""
        return self._weighted(self.weights(q, keys, mask, position), values, mask, position)

    def _fast(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Mask, position: Position
    ) -> Tensor:
        """The context alone, without weights where that can be."""
        # with few queries to decode, the fused kernel's overhead exceeds what it saves
        few = not torch.is_grad_enabled() and q.device.type == "cpu" and q.shape[2] <= FEW
        if few or self.written_out or "value_term" in position.hooks:
            return self._slow(q, keys, values, mask, position)
        bias = self._term(q, keys, mask, position)
        is_causal = mask.is_plain_causal and bias is None
        visible = None if is_causal else mask.visible
        if visible is not None:
            bias = visible.keys if bias is None else bias.masked_fill(~visible.keys, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        scale = position.score_scale(self.head_dim)
        context = fused_attention(q, keys, values, bias, is_causal, dropout, scale)
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
        q = (wide(q) if q.device.type == "cpu" else q) * position.score_scale(self.head_dim)
        return per_group(q, keys.transpose(2, 3), exact=True)

    def _term(self, q: Tensor, keys: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """What the position scheme adds to them."""
        return position.score_term(q, keys, mask.query_positions, mask.key_positions)

    def value_term(self, weights: Tensor, mask: Mask, position: Position) -> Tensor | None:
        """What it adds to the context (B, H, T, Dh), linear in the weights (B, H, T, S)."""
        return position.value_term(weights, mask.query_positions, mask.key_positions)

    def normalise(self, scores: Tensor) -> Tensor:
        """Weights of scores (B, H, T, S), -inf on hidden keys; every row has a finite score."""
        return softmax(scores)

    def _weighted(self, weights: Tensor, values: Tensor, mask: Mask, position: Position) -> Tensor:
        dropped = drop(weights, self.dropout) if self.training else weights
        context = per_group(dropped, values, exact=True).to(values.dtype)
        term = self.value_term(dropped.to(values.dtype), mask, position)
        return context if term is None else context + term


def _is_later(cls: type, name: str, other: str) -> bool:
    """Whether a class gets `name` from a subclass of the class that it gets `other` from."""
    places = [
        next(place for place, parent in enumerate(cls.__mro__) if key in vars(parent))
        for key in (name, other)
    ]
    return places[0] < places[1]


def fused_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    dropout: float,
    scale: float,
) -> Tensor:
    """softmax(q keys^T scale + bias) values; `bias` may be bool, True = may look.

    On a CPU without products in bfloat16 it runs in float32, several times as fast.
    """
    on_cpu = q.device.type == "cpu"
    eager = on_cpu and not torch.compiler.is_compiling()
    plain = bias is None or bias.dtype == torch.bool
    if eager and plain and keys.shape[2] <= longest(q.dtype, dropout):
        return short_attention(q, keys, values, bias, is_causal, scale, dropout)
    if eager and not dropout and tiles_are_quicker(q.dtype, keys.shape[2]):
        return flash_attention(q, keys, values, bias, is_causal, scale)
    if on_cpu and q.dtype == torch.bfloat16:
        bias = bias if bias is None or bias.dtype == torch.bool else bias.float()
        with torch.autocast("cpu", enabled=False):
            wide = (q.float(), keys.float(), values.float(), bias)
            return fused_attention(*wide, is_causal, dropout, scale).to(q.dtype)
    if on_cpu and keys.shape[1] == 1:  # its grouped backward pass is slower
        keys, values = (part.expand(-1, q.shape[1], -1, -1) for part in (keys, values))
    if q.shape[1] != keys.shape[1] and not groups_are_fused(q, bias):
        keys, values = (for_all_heads(part, q.shape[1]) for part in (keys, values))
    return F.scaled_dot_product_attention(
        q,
        keys,
        values,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )


def per_group(x: Tensor, shared: Tensor, exact: bool = False) -> Tensor:
    """x (B, H, T, M) @ shared (B, G, M, N), which is not repeated for the heads of a group.

    With `exact` in float32 at least on a CPU, where a softmax would read rounded scores.
    """
    if exact and x.device.type == "cpu":
        x, shared = wide(x), wide(shared)
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return per_group(x, shared)
    heads, groups = x.shape[1], shared.shape[1]
    multiply = product if x.shape[2] > FEW else row_products
    if heads == groups:
        return multiply(x, shared)
    rows = x.unflatten(1, (groups, -1)).flatten(2, 3)  # (B, H, T, M) -> (B, G, H/G*T, M)
    out = multiply(rows, shared).unflatten(2, (heads // groups, -1))
    return out.flatten(1, 2)  # -> (B, H, T, N)
