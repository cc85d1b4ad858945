"""Strided attention, and the base it shares with the fixed pattern: merged index sets."""

import sys
from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from seqattn import ops
from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.cache import Cache, GrowingCache
from seqattn.attention.kernels.base import Attended, HeadShape
from seqattn.attention.kernels.shared.blockwise import BlockwiseKernel, Piece, Tokens
from seqattn.attention.kernels.shared.fold_beams import fold_beams, fold_mask, unfold_beams
from seqattn.attention.kernels.shared.groups import per_group
from seqattn.attention.kernels.shared.layouts import Band, Columns, Layout
from seqattn.attention.kernels.shared.partial_softmax import Partial, end_to_end, merged, powers_
from seqattn.attention.masks import Mask
from seqattn.checking import Count
from seqattn.errors import UserError
from seqattn.ops.memory import to_device
from seqattn.ops.precision import wide
from seqattn.positions.base import Position


class FactorizedKernel(BlockwiseKernel):
    """Softmax over a union of index sets (Child et al. 2019, arXiv 1904.10509, section 4).

    Every set is dense in its own layout; a key in two sets of a head counts in the first. A decoded
    token reads only the keys of its sets, unless its past contains padding. Several patterns
    alternate from head to head, or from group to group if they do not divide the heads of a group.

    Args:
        stride: l, tokens, at least 1; lengths are padded to multiples of it.
        patterns: for each equal share of the heads, the numbers of its sets.
    """

    dense_up_to = 128

    def __init__(
        self, shape: HeadShape, stride: int, patterns: tuple[tuple[int, ...], ...]
    ) -> None:
        super().__init__(shape)
        if shape.num_heads % len(patterns):
            raise UserError(
                f"attention.num_heads must be even to alternate two patterns, got {shape.num_heads}"
            )
        self.stride = stride
        # merging sets needs softmaxes
        self.dense_up_to = sys.maxsize if self.written_out else max(self.dense_up_to, stride)
        self.patterns = patterns
        if len(patterns) > 1:
            self.unlike_heads = "the two halves of its heads see different keys"
        size = shape.num_heads // shape.num_kv_heads
        self._run = 1 if size % len(patterns) == 0 else size  # neighboring heads of one pattern

    @abstractmethod
    def belongs(self, number: int, i: Tensor, j: Tensor) -> Tensor:
        """Return True where key j is in set `number` of query i, ignoring causality."""

    @abstractmethod
    def layouts(self, causal: bool) -> list[Layout]:
        """Return the layout of each set."""

    def make_cache(self, beams: int) -> Cache:
        return GrowingCache(beams, forgets=False)  # so that columns correspond to tokens

    def pattern(self, mask: Mask) -> Tensor:
        i, j = mask.query_positions[..., :, None], mask.key_positions[..., None, :]
        unions = []
        for pattern in self.patterns:
            sets = [self.belongs(number, i, j) for number in pattern]
            unions.append(torch.stack(torch.broadcast_tensors(*sets, i == j)[:-1]).any(dim=0))
        heads = torch.arange(self.num_heads, device=i.device) // self._run % len(unions)
        return torch.stack(unions, dim=-3).index_select(-3, heads)

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
        plain = not self.is_observed and mask.real is None and mask.extra is None
        if plain and mask.queries == 1 < mask.keys:
            numbers = {number for pattern in self.patterns for number in pattern}
            tokens = torch.arange(mask.keys)  # on the CPU, where counting does not wait for a GPU
            sets = [self.belongs(number, tokens[-1], tokens) for number in numbers]
            columns = torch.stack(sets).any(dim=0).nonzero()[:, 0]
            if 2 * len(columns) <= mask.keys:  # else gathering costs more than it saves
                columns = to_device(columns, q.device)
                return Attended(self._next(q, keys, values, mask, position, slots, columns))
        return super()._attend(q, keys, values, mask, position, slots=slots)

    def _next(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask,
        position: Position,
        slots: BeamSlots | None,
        columns: Tensor,
    ) -> Tensor:
        """Return the context of a decoded token over the tokens at `columns`."""
        beams = q.shape[0] // keys.shape[0]

        def selected(x: Tensor) -> Tensor:  # (.., L*K, ..) -> (.., C*K, ..)
            return x.unflatten(2, (-1, beams)).index_select(2, columns).flatten(2, 3)

        mask = replace(mask, key_positions=mask.key_positions[columns])
        if slots is not None:
            tokens = torch.arange(len(columns), device=q.device).repeat_interleave(beams)
            mask = fold_mask(mask, beams, BeamSlots(selected(slots.ancestry), tokens))
            q = fold_beams(q, beams)
        mask = mask if len(self.patterns) == 1 else self._narrowed(mask)
        context = self._context(q, selected(keys), selected(values), mask, position)
        return context if slots is None else unfold_beams(context, beams)

    def _unit(self, length: int, causal: bool) -> int:
        return self.stride

    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        contexts = []
        for share, pattern in enumerate(self.patterns):
            nths = range(len(pattern))
            contexts.append(merged(self._partial(tokens, share, nth, position) for nth in nths))
        return self._together(contexts).to(tokens.values.dtype)

    def _partial(self, tokens: Tokens, share: int, nth: int, position: Position) -> Partial:
        """Attend to set `nth` in the pattern of `share`, without keys of earlier sets."""
        *counted, number = self.patterns[share][: nth + 1]
        layout = self.layouts(tokens.causal)[number]
        rows = []
        for row in Piece.of(tokens, layout).chunks():
            parts = []
            for piece in row:
                i, j = piece.i[:, :, None], piece.j[:, None, :]
                allowed = self.belongs(number, i, j) & (j >= 0)
                for earlier in counted:
                    allowed = allowed & ~self.belongs(earlier, i, j)
                if tokens.causal:
                    allowed = allowed & (j <= i)
                parts.append(self._softmax(piece, allowed[:, None], share, position))
            rows.append(end_to_end(parts, dim=2))
        batch = len(tokens.query)
        return Partial(*(layout.back(x, batch) for x in end_to_end(rows, dim=0)))

    def _softmax(self, piece: Piece, allowed: Tensor, share: int, position: Position) -> Partial:
        """Attend with the heads of `share` to the allowed keys (R, 1, c, s): (R, H, c, .)."""
        scaled = self._heads(piece.query, share) * position.score_scale(self.head_dim)
        scores = per_group(scaled, self._groups(piece.keys, share).mT, ops.exact_product)
        term = position.score_term(piece.query, piece.keys, piece.i, piece.j)
        if term is not None:
            scores = scores + self._heads(term, share)
        powers, peak = powers_(wide(scores), allowed)
        values = self._groups(piece.values, share)
        dropped = ops.drop(powers, self.dropout if self.training else 0.0).to(values.dtype)
        context = per_group(dropped, values)
        if "value_term" in position.hooks:
            every = [torch.zeros_like(dropped)] * len(self.patterns)
            every[share] = dropped
            value = position.value_term(self._together(every), piece.i, piece.j)
            context = context if value is None else context + self._heads(value, share)
        return Partial(context, powers.sum(dim=-1, keepdim=True), peak)

    def _heads(self, x: Tensor, share: int) -> Tensor:
        """Select the heads of a share: (B, H, ...) -> (B, H/shares, ...); a single head stays."""
        if len(self.patterns) == 1 or x.shape[1] == 1:
            return x
        return x.unflatten(1, (-1, len(self.patterns), self._run))[:, :, share].flatten(1, 2)

    def _groups(self, x: Tensor, share: int) -> Tensor:
        """Select the key or value heads for the query heads of a share, from x (B, G, ...)."""
        size = self.num_heads // self.num_kv_heads
        return x if size % len(self.patterns) == 0 else x[:, share :: len(self.patterns)]

    def _together(self, shares: list[Tensor]) -> Tensor:
        """Interleave the heads of all shares: (B, H/shares, ...) -> (B, H, ...)."""
        if len(shares) == 1:
            return shares[0]
        runs = [part.unflatten(1, (-1, self._run)) for part in shares]
        return torch.stack(runs, dim=2).flatten(1, 3)


def strided_set(number: int, i: Tensor, j: Tensor, stride: int) -> Tensor:
    """Return True where key j is in the near (0) or strided (1) set of i, ignoring causality."""
    return (i - j) % stride == 0 if number else (i - j).abs() <= stride


def strided_layouts(stride: int, causal: bool) -> list[Layout]:
    """Return the layouts of the two sets."""
    return [Band(stride, stride, 0 if causal else stride, compact=True), Columns(stride)]


class StridedKernel(FactorizedKernel):
    """Strided sparse attention (Child et al. 2019, arXiv 1904.10509, section 4.3).

    With stride l, query i sees A1 = {j: i-l <= j <= i} and A2 = {j: (i-j) mod l = 0, j <= i}. An
    encoder sees the same sets on both sides: |i-j| <= l, and all j with (i-j) mod l = 0. Every
    head sees both sets (the paper's merged head), or half of the heads see each.

    Time n*(l + n/l)*D, which is n*sqrt(n)*D at l = sqrt(n), and memory n*(l + n/l) per head;
    growing cache of 2*G*Dh numbers per token, of which the next token reads l + n/l. Bidirectional,
    causal and incremental; not for cross-attention.

    Args:
        stride: l, tokens; about the square root of the usual length.
        split_heads: every other head sees A1 and the others A2, so that one layer still combines
            both; False: every head sees the union. Needs an even number of heads.

    Raises:
        UserError: an odd number of heads to be split.
    """

    def __init__(self, shape: HeadShape, stride: Count = 32, split_heads: bool = False) -> None:
        super().__init__(shape, stride, ((0,), (1,)) if split_heads else ((0, 1),))
        self.sees_all_up_to = 0 if split_heads else stride + 1

    def belongs(self, number: int, i: Tensor, j: Tensor) -> Tensor:
        return strided_set(number, i, j, self.stride)

    def layouts(self, causal: bool) -> list[Layout]:
        return strided_layouts(self.stride, causal)
