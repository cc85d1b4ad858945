"""Absolute positions, added to the embeddings."""

import math
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from seqattn import ops
from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.positions.base import Position, Stack


class SinusoidalPosition(Position):
    """Sines and cosines with wavelengths in geometric progression, for any length.

    Even channels hold sin(p / 10000^(2i/D)), odd ones the cosine (Vaswani et al. 2017,
    arXiv 1706.03762, section 3.5). An odd D drops the last cosine.

    Args:
        stack: the stack of layers.
        layout: `interleaved`, or `halves` for all sines before all cosines (tensor2tensor, Marian).
        first: position of the first token.
        endpoint: the longest wavelength is 10000 * 2 pi, the wavelength that the geometric
            progression would reach at channel D (tensor2tensor, fairseq); needs D of at least 4.
    """

    hooks = frozenset({"embed"})

    def __init__(
        self,
        stack: Stack,
        layout: Literal["interleaved", "halves"] = "interleaved",
        first: Annotated[int, Ge(0), Le(10**6)] = 0,
        endpoint: bool = False,
    ) -> None:
        super().__init__(stack)
        if endpoint and stack.dim < 4:
            raise BadValue("endpoint", f"needs model.dim of at least 4, got {stack.dim}")
        self.layout, self.first, self.endpoint = layout, first, endpoint

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        dim, kind = self.stack.dim, torch.promote_types(x.dtype, torch.float32)
        even = torch.arange(0, dim, 2, device=x.device, dtype=kind)
        last = (dim - 1) // 2 * 2 if self.endpoint else dim
        frequency = torch.exp(even * (-math.log(10000.0) / last))
        angle = (positions + self.first)[..., None] * frequency  # (T or B T, ceil(D/2))
        waves = torch.stack((angle.sin(), angle.cos()), dim=-1)
        if self.layout == "halves":
            waves = waves.transpose(-1, -2)
        return x + waves.flatten(-2)[..., :dim].to(x.dtype)


class LearnedPosition(Position):
    """A learned vector per position, up to a fixed length (Gehring et al. 2017, arXiv 1705.03122).

    Args:
        stack: the stack of layers.
        max_length: positions in the table, in tokens.

    Raises:
        UserError: from `embed`, past `max_length`.
    """

    hooks = frozenset({"embed"})

    def __init__(self, stack: Stack, max_length: Annotated[int, Ge(1), Le(10**6)] = 512) -> None:
        super().__init__(stack)
        self.max_length = max_length
        self.table = nn.Embedding(max_length, stack.dim)
        nn.init.normal_(self.table.weight, std=stack.dim**-0.5)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        # reading positions would synchronize a GPU: training and search check lengths beforehand
        longest = int(positions.max()) + 1 if ops.at_hand(positions) else x.shape[1]
        limit = self.table.num_embeddings
        if longest > limit:
            raise UserError(
                f"position=learned supports at most position.max_length ({limit}) tokens, got "
                f"{longest}; shorten it, or train with a larger position.max_length"
            )
        return x + self.table(positions)
