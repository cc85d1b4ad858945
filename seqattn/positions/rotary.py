"""Rotary positions: queries and keys rotated by angles proportional to their position."""

import math

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from seqattn.checking import Positive
from seqattn.errors import UserError
from seqattn.positions.base import Position, Stack

Tables = tuple[Tensor, Tensor]
_cached_tables = WeakTensorKeyDictionary()
"""Cached tables of each positions tensor, by head width and type, for the tensor's lifetime."""


class RotaryPosition(Position):
    """RoPE: scores depend only on the distance i - j (Su et al. 2021, arXiv 2104.09864, eq. 34).

    Channel c is paired with channel c + Dh/2 (the layout of Llama and GPT-NeoX).

    Args:
        stack: the stack of layers.
        base: base of the geometric progression of wavelengths.
        scaling: divisor of the positions (position interpolation, Chen et al. 2023,
            arXiv 2306.15595); 1 for none.

    Raises:
        UserError: the head width dim / num_heads is odd.
    """

    hooks = frozenset({"rotate"})

    def __init__(self, stack: Stack, base: Positive = 10000.0, scaling: Positive = 1.0) -> None:
        super().__init__(stack)
        if stack.head_dim % 2:
            raise UserError(
                f"position=rope needs an even head width, got {stack.head_dim} ({stack.dim} / "
                f"{stack.num_heads} heads); change model.dim or attention.num_heads"
            )
        self.base = base
        self.scaling = scaling

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        head_dim = x.shape[-1]
        cos, sin = self._tables(positions, head_dim, x.dtype)
        return x * cos + x.roll(head_dim // 2, dims=-1) * sin

    def _tables(self, positions: Tensor, head_dim: int, kind: torch.dtype) -> Tables:
        """Return cosines and sines, (T, Dh) or (B, 1, T, Dh), cached for all layers of a pass."""
        if torch.compiler.is_compiling():
            return self._new_tables(positions, head_dim, kind)
        tables = _cached_tables.setdefault(positions, {})
        shape = (head_dim, kind, self.base, self.scaling)
        if shape not in tables:
            tables[shape] = self._new_tables(positions, head_dim, kind)
        return tables[shape]

    def _new_tables(self, positions: Tensor, head_dim: int, kind: torch.dtype) -> Tables:
        wide_kind = torch.promote_types(kind, torch.float32)
        even = torch.arange(0, head_dim, 2, device=positions.device, dtype=wide_kind)
        frequency = torch.exp(even * (-math.log(self.base) / head_dim)) / self.scaling
        frequency = torch.cat((-frequency, frequency))  # sines of opposite sign for the two halves
        angle = positions[..., None] * frequency  # (T or B T, Dh)
        if angle.dim() == 3:
            angle = angle[:, None]  # (B, T, Dh) -> (B, 1, T, Dh)
        return angle.cos().to(kind), angle.sin().to(kind)
