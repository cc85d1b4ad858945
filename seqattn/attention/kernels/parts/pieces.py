"""Queries and the keys that they meet, cut small enough for a processor's cache."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seqattn.attention.kernels.parts.layouts import Layout
from seqattn.attention.kernels.parts.sparse import Arranged

LARGEST = 2**20
"""Scores that a CPU makes at once; other devices, and compiled graphs, make all at once."""


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
    """(R, s), positions of the keys."""
    real: Tensor
    """(R, s) bool."""
    extra: Tensor | None
    """The user's own mask, (R, H or 1, c, s) bool; None for none."""

    @classmethod
    def folded(cls, arranged: Arranged, layout: Layout) -> "Piece":
        """The whole sequence, cut as `layout` does."""
        rows, _, length, _ = arranged.query.shape
        slots = torch.arange(length, device=arranged.query.device)[None, None, :, None]
        i, j = layout.queries(slots)[:, 0, :, 0], layout.keys(slots)[:, 0, :, 0]  # (P, c), (P, s)
        return cls(
            layout.queries(arranged.query),
            layout.keys(arranged.keys),
            layout.keys(arranged.values),
            i.repeat(rows, 1),
            j.repeat(rows, 1),
            layout.keys(arranged.real[:, None, :, None])[:, 0, :, 0],
            arranged.extra_at(i[None], j[None]),
        )

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
        for part, extra in zip(whole, extras):
            query, k, v, i, j, real = part
            yield Piece(query, k, v, i, j, real, extra)._queries_cut(queries)

    def _queries_cut(self, size: int) -> Iterator["Piece"]:
        query, i = self.query.split(size, dim=2), self.i.split(size, dim=1)
        extras = [None] * len(i) if self.extra is None else self.extra.split(size, dim=2)
        for part, places, extra in zip(query, i, extras):
            yield self._replace(query=part, i=places, extra=extra)
