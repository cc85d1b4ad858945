"""Relative positions: a learned vector per clipped distance, on keys and optionally on values."""

import torch
from torch import Tensor, nn

from seqattn.checking import checked
from seqattn.positions.base import LayeredPosition, Position, Stack
from seqattn.positions.distances import Reach, collect, read, table_rows


@checked
class ShawPosition(LayeredPosition):
    """Relative position representations (Shaw et al. 2018, arXiv 1803.02155, eqs. 3 to 5).

    A key at distance j - i from its query counts as k_j + a^K_{clip(j-i)} in the scores, and its
    value as v_j + a^V_{clip(j-i)} in the context. Each layer has its own tables, which its heads
    share. Time T*S*H more, or T*R*H*Dh for R = 2*max_distance + 1 rows, whichever is larger; no
    tensor of T*S vectors is made. With `values`, the weights are written out.

    Args:
        stack: what it serves.
        max_distance: distances are clipped to it, in tokens.
        values: whether values have positions as well.
    """

    def __init__(self, stack: Stack, max_distance: Reach = 16, values: bool = False) -> None:
        super().__init__(stack, lambda: ShawLayer(stack, max_distance, values))


class ShawLayer(Position):
    """One layer's part of `ShawPosition`. Args: as there."""

    def __init__(self, stack: Stack, max_distance: int, values: bool) -> None:
        super().__init__(stack)
        self.max_distance = max_distance
        self.hooks = frozenset({"score_term", "value_term"} if values else {"score_term"})
        self.keys = self._table()
        self.values = self._table() if values else None

    def _table(self) -> nn.Parameter:
        """Row r is for distance i - j = r - max_distance: (R, Dh)."""
        table = torch.empty(2 * self.max_distance + 1, self.stack.head_dim)
        return nn.Parameter(nn.init.xavier_uniform_(table))

    def _rows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return table_rows(q_positions, k_positions, -self.max_distance, len(self.keys))

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        table = self.keys * self.score_scale(q.shape[-1])
        rows = self._rows(q_positions, k_positions)
        return read(q @ table.T, rows, q.dtype)  # (B, H, T, R) -> (B, H, T, S)

    def value_term(
        self, weights: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> Tensor | None:
        if self.values is None:
            return None
        rows = self._rows(q_positions, k_positions)
        return collect(weights, rows, len(self.values)) @ self.values  # (B, H, T, R) -> (.., Dh)
