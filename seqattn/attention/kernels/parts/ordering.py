"""Self-attention with every row's tokens first, so that nothing depends on padding."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.parts.layouts import Layout
from seqattn.attention.masks import Mask, real_first

LARGEST = 2**20
"""Scores that a CPU makes at once; other devices, and compiled graphs, make all at once."""


class Tokens(NamedTuple):
    """Queries, keys and values of the same tokens; slot i holds real position i.

    N is the length rounded up to whole blocks.
    """

    query: Tensor
    """(B, H, N, Dh)."""
    keys: Tensor
    """(B, G, N, Dh)."""
    values: Tensor
    """(B, G, N, Dh)."""
    real: Tensor | None
    """(B, N) bool; None where all are."""
    extra: Tensor | None
    """The user's own mask, bool (B, H or 1, N, N); None for none."""
    causal: bool

    @classmethod
    def of(
        cls, query: Tensor, new: KeysValues, mask: Mask, unit: int
    ) -> tuple["Tokens", Tensor | None]:
        """The tokens of a pass without a past, and the order (B, T) that they were put in.

        Args:
            query: (B*K, H, T, Dh), rotated as the keys are.
            new: keys and values (B*K, G, T, Dh).
            mask: what each query may look at.
            unit: tokens of a block, to whose multiple the length is filled up.
        """
        rows, _, steps, _ = query.shape
        real, order = real_rows(mask.real, rows, steps)
        extra = mask.extra
        if extra is not None:
            extra = torch.broadcast_to(extra, (rows, extra.shape[-3], steps, steps))
        if order is not None:
            query, new = moved(query, order), KeysValues(*(moved(x, order) for x in new))
            extra = None if extra is None else moved(moved(extra, order).mT, order).mT
        blank = -steps % unit
        if blank:
            query, keys, values = (F.pad(x, (0, 0, 0, blank)) for x in (query, *new))
            new = KeysValues(keys, values)
            if real is None:
                real = torch.ones(rows, steps, dtype=torch.bool, device=query.device)
            real = F.pad(real, (0, blank))
            extra = None if extra is None else F.pad(extra, (0, blank, 0, blank))
        return cls(query, *new, real, extra, mask.causal), order


def real_rows(real: Tensor | None, rows: int, steps: int) -> tuple[Tensor | None, Tensor | None]:
    """Which of the last T tokens of each row are real once they stand first, and their order.

    Args:
        real: (B, S) bool, None where all are.
        rows: B*K.
        steps: T.

    Returns:
        (B*K, T) bool and (B*K, T) indices, each None where there is nothing to tell.
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
    return x.gather(2, order[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def moved_back(x: Tensor, order: Tensor | None) -> Tensor:
    """Undoes `moved`."""
    return x if order is None else moved(x, order.argsort(dim=1))


class Piece(NamedTuple):
    """Queries and the keys that they meet in a layout, R pieces side by side."""

    query: Tensor
    """(R, H, c, Dh)."""
    keys: Tensor
    """(R, G, s, Dh)."""
    values: Tensor
    """(R, G, s, Dh)."""
    i: Tensor
    """(R, c), positions of the queries."""
    j: Tensor
    """(R, s), positions of the keys, -1 where there is none."""
    real: Tensor
    """(R, s) bool."""
    extra: Tensor | None
    """The user's own mask, (R, H or 1, c, s) bool; None for none."""

    @classmethod
    def of(cls, tokens: Tokens, layout: Layout) -> "Piece":
        """The whole sequence, cut as `layout` does."""
        rows, _, length, _ = tokens.query.shape
        slots = torch.arange(1, length + 1, device=tokens.query.device)[None, None, :, None]
        slots = slots.expand(layout.rows, -1, -1, -1)
        i, j = (cut(slots)[:, 0, :, 0] - 1 for cut in (layout.queries, layout.keys))
        i, j = (x.repeat(rows // layout.rows, 1) for x in (i, j))
        real, extra = j >= 0, None
        if tokens.real is not None:
            real = real & layout.keys(tokens.real[:, None, :, None])[:, 0, :, 0]
        if tokens.extra is not None:
            row = torch.arange(rows, device=i.device).repeat_interleave(len(i) // rows)
            found = tokens.extra.permute(0, 2, 3, 1)
            extra = found[row[:, None, None], i[:, :, None], j[:, None]].permute(0, 3, 1, 2)
        keys, values = layout.keys(tokens.keys), layout.keys(tokens.values)
        return cls(layout.queries(tokens.query), keys, values, i, j, real, extra)

    def cut(self) -> Iterator[Iterator["Piece"]]:
        """Chunks of pieces, each of them chunks of queries, of about `LARGEST` scores."""
        pieces, heads, steps, _ = self.query.shape
        keys = self.keys.shape[2]
        rows, queries = pieces, steps
        if self.query.device.type == "cpu" and not torch.compiler.is_compiling():
            rows = max(1, LARGEST // (heads * steps * keys))
            queries = max(1, LARGEST // (heads * keys))
        whole = zip(*(x.split(rows) for x in self[:6]))
        extras = [None] * pieces if self.extra is None else self.extra.split(rows)
        for (query, k, v, i, j, real), extra in zip(whole, extras):
            yield Piece(query, k, v, i, j, real, extra)._queries_cut(queries)

    def _queries_cut(self, size: int) -> Iterator["Piece"]:
        query, i = self.query.split(size, dim=2), self.i.split(size, dim=1)
        extras = [None] * len(i) if self.extra is None else self.extra.split(size, dim=2)
        for part, places, extra in zip(query, i, extras):
            yield self._replace(query=part, i=places, extra=extra)
