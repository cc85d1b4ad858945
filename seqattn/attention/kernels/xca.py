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

    Each channel of a head's output is a mean of the channels of its values, the same mean for
    every token; tokens meet in the sums of K^T Q alone, and padding adds nothing to those. So it
    has no weights over keys to show, takes no mask but padding, and knows positions only through
    `embed`. Time T*D^2/H, memory T*D and Dh^2 a head, no cache: it cannot be causal, cross or
    incremental, only an encoder's self-attention.

    Args:
        tau: the temperature of every head at the start, above 0; learned.
    """

    abilities = Abilities(normalised=False)
    mixes_values = False

    def __init__(self, shape: HeadShape, tau: Positive = 1.0) -> None:
        super().__init__(shape)
        log_tau = torch.full((shape.num_heads,), math.log(tau))  # so that tau stays above 0
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
    """Every channel (B, H, :, c) divided by its length over the tokens; 0 stays 0."""
    return F.normalize(wide(x), dim=2).to(x.dtype)
