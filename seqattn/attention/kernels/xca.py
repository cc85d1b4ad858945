"""Cross-covariance attention: channels attend to channels."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn import ops
from seqattn.attention.base import Abilities
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import EncoderKernel, HeadShape
from seqattn.attention.masks import Mask
from seqattn.checking import Positive
from seqattn.ops.precision import wide
from seqattn.positions.base import Position


class XCAKernel(EncoderKernel):
    """V softmax(K^T Q / tau), columns of Q and K of length 1 (El-Nouby 2021, arXiv 2106.09681).

    Each channel of a head's output is a weighted mean of the channels of its values, the same for
    every token; tokens interact only through the sums K^T Q, to which padding adds nothing. So it
    has no observable weights over keys, supports no mask but padding, and uses positions only
    through `embed`. Time T*D^2/H, memory T*D and Dh^2 per head, no cache: only for an encoder's
    self-attention, neither causal, cross nor incremental.

    Args:
        tau: initial temperature of every head, above 0; learned.
    """

    abilities = Abilities(normalized=False)
    mixes_values = False

    def __init__(self, shape: HeadShape, tau: Positive = 1.0) -> None:
        super().__init__(shape)
        log_tau = torch.full((shape.num_heads,), math.log(tau))  # keeps tau positive
        self.log_tau = nn.Parameter(log_tau)

    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        q, keys, values = query, new.keys, new.values
        if mask.real is not None:
            hidden = ~mask.real[:, None, :, None]
            q, keys, values = (x.masked_fill(hidden, 0.0) for x in (q, keys, values))
        groups = self.num_kv_heads, self.num_heads // self.num_kv_heads
        rows = _unit(q).unflatten(1, groups).transpose(3, 4).flatten(2, 3)  # (B, G, H/G*Dh, T)
        scores = ops.product(rows, _unit(keys)).unflatten(2, (groups[1], -1))  # (B, G, H/G, Dh, Dh)
        tau = self.log_tau.exp().unflatten(0, groups)[..., None, None]
        mix = (scores / tau).softmax(dim=-1).flatten(2, 3)  # (B, G, H/G*Dh, Dh)
        context = ops.product(values, mix.to(values.dtype).transpose(2, 3))  # (B, G, T, H/G*Dh)
        return context.unflatten(3, (groups[1], -1)).transpose(2, 3).flatten(1, 2)


def _unit(x: Tensor) -> Tensor:
    """Return every channel (B, H, :, c) divided by its norm over the tokens; 0 stays 0."""
    return F.normalize(wide(x), dim=2).to(x.dtype)
