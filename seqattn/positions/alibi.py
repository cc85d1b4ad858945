"""ALiBi: scores fall with distance, at a slope of each head's own."""

import torch
from torch import Tensor

from seqattn.positions.base import Position


class ALiBiPosition(Position):
    """Attention with linear biases, -m_h * |i - j| (Press et al. 2022, arXiv 2108.12409, eq. 3).

    In a decoder, where j <= i, that is the paper's -m_h * (i - j); an encoder's is symmetric.
    Nothing is learned, and any length goes.

    Args:
        stack: what it serves.
    """

    hooks = frozenset({"score_term"})

    def score_term(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        slopes = alibi_slopes(self.stack.num_heads, q)[:, None, None]  # (H, 1, 1)
        distance = (q_positions[..., :, None] - k_positions[..., None, :]).abs()
        if distance.dim() == 2:
            distance = distance[None]  # (T, S) -> (1, T, S)
        return (distance[:, None] * -slopes).to(q.dtype)  # (B or 1, H, T, S)


def alibi_slopes(num_heads: int, like: Tensor | None = None) -> Tensor:
    """The slope m_h of each head: (H,), in float32 or the finer type of `like`, on its device.

    Geometric from 2^(-8/H) where H is a power of 2; else those of the largest power of 2 below,
    then every other one of the next power of 2, as in the authors' code (`get_slopes`).
    """
    power = 2 ** (num_heads.bit_length() - 1)
    like = torch.empty(0) if like is None else like
    count = torch.arange(1, power + 1, device=like.device)
    count = count.to(torch.promote_types(like.dtype, torch.float32))
    whole, between = count * (8 / power), (2 * count - 1)[: num_heads - power] * (4 / power)
    return torch.exp2(-torch.cat((whole, between)))
