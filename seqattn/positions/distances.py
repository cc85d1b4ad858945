"""Tables with a row per distance, read for every pair of a block of queries and keys."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from seqattn.ops.precision import wide

Reach = Annotated[int, Ge(0), Le(65_536)]
"""The distance that a table ends at, in tokens."""


def table_rows(q_positions: Tensor, k_positions: Tensor, lowest: int, size: int) -> Tensor:
    """The row of a table for each query and key: row r is for distance i - j = lowest + r.

    Distances beyond either end of the table take its first or last row.

    Args:
        q_positions: (T,) or (B, T), positions i.
        k_positions: (S,) or (B, S), positions j.
        lowest: the distance of row 0.
        size: rows of the table R.

    Returns:
        (T, S), or (B, T, S) where either has a batch axis.
    """
    distance = q_positions[..., :, None] - k_positions[..., None, :]
    return (distance - lowest).clamp(0, size - 1)


def reached(rows: Tensor, size: int) -> tuple[Tensor, slice]:
    """The stretch of a large table that a small block needs, so that no more of it is computed.

    Args:
        rows: (..., T, S) from `table_rows`.
        size: rows of the table R.

    Returns:
        The same rows counted from the start of that stretch, and the stretch; all of the table
        where T queries and S keys standing in a row could reach it, and in a compiled graph,
        which cannot depend on positions.
    """
    small = rows.numel() > 0 and rows.shape[-2] + rows.shape[-1] < size
    if torch.compiler.is_compiling() or not small:
        return rows, slice(0, size)
    low, high = (int(end) for end in rows.aminmax())
    return rows - low, slice(low, high + 1)


def read(values: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """values[..., t, rows[t, s]] for each pair.

    The gradient sums over all pairs of a row, so it is taken in float32 at least.

    Args:
        values: (B or 1, H, T or 1, R).
        rows: (T, S) or (B, T, S) from `table_rows`.
        dtype: of the result.

    Returns:
        (B or 1, H, T, S).
    """
    rows = rows[..., None, :, :]  # (T, S) -> (1, T, S), (B, T, S) -> (B, 1, T, S)
    pairs = torch.broadcast_shapes(values.shape[:3], rows.shape[:-1])  # (B, H, T)
    return wide(values).expand(*pairs, -1).gather(3, rows.expand(*pairs, -1)).to(dtype)


def collect(weights: Tensor, rows: Tensor, size: int) -> Tensor:
    """The weight that each query gives to each row of a table, the reverse of `read`.

    Args:
        weights: (B, H, T, S).
        rows: (T, S) or (B, T, S) from `table_rows`.
        size: rows of the table R.

    Returns:
        (B, H, T, R).
    """
    precise = wide(weights)
    total = precise.new_zeros(*weights.shape[:3], size)
    rows = rows[..., None, :, :].expand_as(weights)
    return total.scatter_add(3, rows, precise).to(weights.dtype)
