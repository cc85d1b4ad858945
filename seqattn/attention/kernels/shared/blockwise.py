"""The engine of sparse softmax attention: a pattern over positions, evaluated block by block."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.beam_table import BeamSlots
from seqattn.attention.kernels.base import Attended
from seqattn.attention.kernels.shared.layouts import Layout
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask, real_first
from seqattn.ops.memory import block_numbers
from seqattn.positions.base import Position

# scores computed at once on a CPU; other devices and compiled graphs compute all at once
LARGEST = 2**20


class Tokens(NamedTuple):
    """Queries, keys and values of the same tokens, with real position i in slot i.

    N is the length rounded up to full blocks.
    """

    query: Tensor  # (B, H, N, Dh)
    keys: Tensor  # (B, G, N, Dh)
    values: Tensor  # (B, G, N, Dh)
    real: Tensor | None  # (B, N) bool; None if all are
    causal: bool

    @classmethod
    def of(
        cls, query: Tensor, keys: Tensor, values: Tensor, mask: Mask, unit: int
    ) -> tuple["Tokens", Tensor | None]:
        """Return the tokens of a pass without a past, and their order (B, T).

        From rotated queries (B, H, T, Dh) and keys (B, G, T, Dh), padded to a multiple of `unit`.
        """
        rows, _, steps, _ = query.shape
        real, order = real_rows(mask.real, rows, steps)
        query, keys, values = (in_order(x, order) for x in (query, keys, values))
        blank = -steps % unit
        if blank:
            query, keys, values = (F.pad(x, (0, 0, 0, blank)) for x in (query, keys, values))
            if real is None:
                real = torch.ones(rows, steps, dtype=torch.bool, device=query.device)
            real = F.pad(real, (0, blank))
        return cls(query, keys, values, real, mask.causal), order


def real_rows(real: Tensor | None, rows: int, steps: int) -> tuple[Tensor | None, Tensor | None]:
    """Return which of the last T = `steps` tokens are real, with real ones first, and the order.

    From real (B, S), or None if all are; returns (`rows`, T) bool and indices, None if not needed.
    """
    if real is None:
        return None, None
    real = real[:, -steps:].repeat_interleave(rows // real.shape[0], dim=0)
    order = real_first(real)
    return (real, None) if order is None else (real.gather(1, order), order)


def in_order(x: Tensor, order: Tensor | None) -> Tensor:
    """Return x (B, X, S, M) with its tokens in `order` (B, S); unchanged for None."""
    if order is None:
        return x
    index = order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, index)


def original_order(x: Tensor, order: Tensor | None) -> Tensor:
    """Undo `in_order`."""
    return x if order is None else in_order(x, order.argsort(dim=1))


class Piece(NamedTuple):
    """Queries and their keys in a layout, for R blocks."""

    query: Tensor  # (R, H, c, Dh)
    keys: Tensor  # (R, G, s, Dh)
    values: Tensor  # (R, G, s, Dh)
    i: Tensor  # (R, c), positions of the queries
    j: Tensor  # (R, s), positions of the keys, -1 for none or padding

    @classmethod
    def of(cls, tokens: Tokens, layout: Layout) -> "Piece":
        """Split the complete sequence by `layout`."""
        rows, _, length, _ = tokens.query.shape
        slots = torch.arange(1, length + 1, device=tokens.query.device)[None, None, :, None]
        slots = slots.expand(rows, -1, -1, -1)
        i = layout.queries(slots)[:, 0, :, 0] - 1
        if tokens.real is not None:
            slots = slots * tokens.real[:, None, :, None]
        j = layout.keys(slots)[:, 0, :, 0] - 1
        keys, values = layout.keys(tokens.keys), layout.keys(tokens.values)
        return cls(layout.queries(tokens.query), keys, values, i, j)

    def chunks(self) -> Iterator[list["Piece"]]:
        """Yield chunks of blocks, each a list of chunks of queries, of about `LARGEST` scores."""
        rows, heads, queries, _ = self.query.shape
        if not torch.compiler.is_compiling():
            limit = block_numbers(self.query, LARGEST) // (heads * self.keys.shape[2])
            rows, queries = max(1, limit // queries), max(1, limit)
        for query, keys, values, i, j in zip(*(x.split(rows) for x in self)):
            parts = zip(query.split(queries, dim=2), i.split(queries, dim=1))
            yield [Piece(part, keys, values, positions, j) for part, positions in parts]


class BlockwiseKernel(SoftmaxKernel):
    """Softmax over the keys of a pattern of real positions.

    A full pass runs in blocks (`_blocks`), without T x T tensors, as does the first call when
    decoding with one beam if it has several tokens. Otherwise decoding reads the growing cache with
    the pattern as a mask, in time linear in the past per token. Weights are materialized densely if
    observed, under a user-defined mask, which is just as large, and for at most `dense_up_to`
    tokens.
    """

    abilities = replace(SoftmaxKernel.abilities, cross=False)
    dense_up_to: int = 0  # tokens up to which a dense pass under the pattern is faster

    @abstractmethod
    def pattern(self, mask: Mask) -> Tensor:
        """Return the keys of each query by their positions, ignoring causality and padding.

        Returns:
            Bool, broadcastable to (B, H, T, S).
        """

    @abstractmethod
    def _unit(self, length: int, causal: bool) -> int:
        """Return the number of tokens that lengths are padded to a multiple of."""

    @abstractmethod
    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        """Compute the context (B, H, N, Dh) of a complete sequence, without N x N tensors."""

    def _narrowed(self, mask: Mask) -> Mask:
        return mask.with_extra(self.pattern(mask))

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
        steps = q.shape[2]
        if slots is not None or steps == 1 or steps < keys.shape[2]:  # there is a past
            return super()._attend(q, keys, values, mask, position, slots=slots)
        short = steps <= self.dense_up_to
        if short or self.is_observed or mask.extra is not None:
            # positions as in blocks, which also skip padding between tokens
            if mask.real is not None:
                positions = (mask.real.long().cumsum(dim=1) - 1).clamp(min=0)
                mask = replace(mask, query_positions=positions, key_positions=positions)
            if short:
                return super()._attend(q, keys, values, mask, position)
            dense = self._narrowed(mask)
            weights = self.weights(q, keys, dense, position)
            used = self.edit_and_show(weights, dense.dense)
            if used is not None or mask.extra is not None:
                used = weights if used is None else used
                return Attended(self._weighted(used, values, dense, position))
        tokens, order = Tokens.of(q, keys, values, mask, self._unit(steps, mask.causal))
        return Attended(original_order(self._blocks(tokens, position)[:, :, :steps], order))

    def _beside(self, tokens: Tokens, layout: Layout, first: int, position: Position) -> Tensor:
        """Attend from the first queries to all tokens, from others to the keys of their block."""
        slots = torch.arange(tokens.query.shape[2], device=tokens.query.device)
        contexts = []
        if first:
            mask = Mask(slots[:first], slots, tokens.real)
            q = tokens.query[:, :, :first]
            contexts.append(self._context(q, tokens.keys, tokens.values, mask, position))
        if first < len(slots):
            piece = Piece.of(tokens, layout)
            allowed = self._sees(piece, layout, tokens.causal)[:, None]
            mask = Mask(piece.i, piece.j, extra=allowed)
            context = self._context(piece.query, piece.keys, piece.values, mask, position)
            contexts.append(layout.back(context, tokens.query.shape[0])[:, :, first:])
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=2)

    def _sees(self, piece: Piece, layout: Layout, causal: bool) -> Tensor:
        """Return which keys of its block each query sees, bool broadcastable to (R, c, s)."""
        return (piece.j >= 0)[:, None]
