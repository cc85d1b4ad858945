"""The engine of sparse softmax attention: a pattern over positions, evaluated block by block."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.cache import BeamSlots
from seqattn.attention.kernels.base import Attended
from seqattn.attention.kernels.parts.layouts import Layout
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask, real_first
from seqattn.ops.memory import block_numbers
from seqattn.positions.base import Position

# scores that a CPU makes at once; other devices, and compiled graphs, make all at once
LARGEST = 2**20


class Tokens(NamedTuple):
    """Queries, keys and values of the same tokens; slot i holds real position i.

    N is the length rounded up to whole blocks.
    """

    query: Tensor  # (B, H, N, Dh)
    keys: Tensor  # (B, G, N, Dh)
    values: Tensor  # (B, G, N, Dh)
    real: Tensor | None  # (B, N) bool; None where all are
    causal: bool

    @classmethod
    def of(
        cls, query: Tensor, keys: Tensor, values: Tensor, mask: Mask, unit: int
    ) -> tuple["Tokens", Tensor | None]:
        """The tokens of a pass without a past, and the order (B, T) that they were put in.

        Of rotated queries (B, H, T, Dh) and keys (B, G, T, Dh), filled up to a multiple of `unit`.
        """
        rows, _, steps, _ = query.shape
        real, order = real_rows(mask.real, rows, steps)
        query, keys, values = (moved(x, order) for x in (query, keys, values))
        blank = -steps % unit
        if blank:
            query, keys, values = (F.pad(x, (0, 0, 0, blank)) for x in (query, keys, values))
            if real is None:
                real = torch.ones(rows, steps, dtype=torch.bool, device=query.device)
            real = F.pad(real, (0, blank))
        return cls(query, keys, values, real, mask.causal), order


def real_rows(real: Tensor | None, rows: int, steps: int) -> tuple[Tensor | None, Tensor | None]:
    """Which of the last T = `steps` tokens are real once these stand first, and their order.

    Of real (B, S), None where all are: (`rows`, T) bool and indices, None with nothing to tell.
    """
    if real is None:
        return None, None
    real = real[:, -steps:].repeat_interleave(rows // real.shape[0], dim=0)
    order = real_first(real)
    return (real, None) if order is None else (real.gather(1, order), order)


def moved(x: Tensor, order: Tensor | None) -> Tensor:
    """x (B, X, S, M) with its tokens in `order` (B, S), as they stand for None."""
    if order is None:
        return x
    index = order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
    return x.gather(2, index)


def moved_back(x: Tensor, order: Tensor | None) -> Tensor:
    """Undoes `moved`."""
    return x if order is None else moved(x, order.argsort(dim=1))


class Piece(NamedTuple):
    """Queries and the keys that they meet in a layout, R pieces side by side."""

    query: Tensor  # (R, H, c, Dh)
    keys: Tensor  # (R, G, s, Dh)
    values: Tensor  # (R, G, s, Dh)
    i: Tensor  # (R, c), positions of the queries
    j: Tensor  # (R, s), positions of the keys, -1 where there is none or padding

    @classmethod
    def of(cls, tokens: Tokens, layout: Layout) -> "Piece":
        """The whole sequence, cut as `layout` does."""
        rows, _, length, _ = tokens.query.shape
        slots = torch.arange(1, length + 1, device=tokens.query.device)[None, None, :, None]
        slots = slots.expand(rows, -1, -1, -1)
        i = layout.queries(slots)[:, 0, :, 0] - 1
        if tokens.real is not None:
            slots = slots * tokens.real[:, None, :, None]
        j = layout.keys(slots)[:, 0, :, 0] - 1
        keys, values = layout.keys(tokens.keys), layout.keys(tokens.values)
        return cls(layout.queries(tokens.query), keys, values, i, j)

    def cut(self) -> Iterator[list["Piece"]]:
        """Chunks of pieces, each of them chunks of queries, of about `LARGEST` scores."""
        rows, heads, queries, _ = self.query.shape
        if not torch.compiler.is_compiling():
            most = block_numbers(self.query, LARGEST) // (heads * self.keys.shape[2])
            rows, queries = max(1, most // queries), max(1, most)
        for query, keys, values, i, j in zip(*(x.split(rows) for x in self)):
            parts = zip(query.split(queries, dim=2), i.split(queries, dim=1))
            yield [Piece(part, keys, values, places, j) for part, places in parts]


class BlockwiseKernel(SoftmaxKernel):
    """Softmax over the keys of a pattern that is made of real positions only.

    A full pass runs in blocks (`_blocks`), with nothing of T x T; so does a first call of several
    tokens while decoding with one beam. Else decoding reads the growing cache under the pattern as
    a mask, so a token costs time linear in the past. Observed weights are written out densely
    beside either, and so is a pass under a mask of the user's own, which is as large, and one of at
    most `dense_up_to` tokens.
    """

    abilities = replace(SoftmaxKernel.abilities, cross=False)
    dense_up_to: int = 0  # tokens, so few that a dense pass under the pattern is quicker

    @abstractmethod
    def pattern(self, mask: Mask) -> Tensor:
        """The keys that belong to each query by their positions, causality and padding left out.

        Returns:
            Bool, broadcastable to (B, H, T, S).
        """

    @abstractmethod
    def _unit(self, length: int, causal: bool) -> int:
        """Tokens that blocks come in multiples of."""

    @abstractmethod
    def _blocks(self, tokens: Tokens, position: Position) -> Tensor:
        """The context (B, H, N, Dh) of a whole sequence, with no tensor of N x N."""

    def _narrowed(self, mask: Mask) -> Mask:
        return mask.joined(self.pattern(mask))

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
        if short or self.watched or mask.extra is not None:
            if mask.real is not None:  # as blocks count, padding between tokens left out too
                places = (mask.real.long().cumsum(dim=1) - 1).clamp(min=0)
                mask = replace(mask, query_positions=places, key_positions=places)
            if short:
                return super()._attend(q, keys, values, mask, position)
            dense = self._narrowed(mask)
            weights = self.weights(q, keys, dense, position)
            used = self.settled(weights, dense.dense)
            if used is not None or mask.extra is not None:
                used = weights if used is None else used
                return Attended(self._weighted(used, values, dense, position))
        tokens, order = Tokens.of(q, keys, values, mask, self._unit(steps, mask.causal))
        return Attended(moved_back(self._blocks(tokens, position)[:, :, :steps], order))

    def _beside(self, tokens: Tokens, layout: Layout, first: int, position: Position) -> Tensor:
        """The first queries over all tokens, the others each over the keys of its block alone."""
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
        """Which keys of its block each query sees, bool broadcastable to (R, c, s)."""
        return (piece.j >= 0)[:, None]
