"""Cross-covariance attention: channels attend to channels."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.attention.base import Abilities, Kernel
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class XCAKernel(Kernel):
    """V softmax(K^T Q / tau), columns of Q and K of length 1 (El-Nouby 2021, arXiv 2106.09681).

    Each channel of a head's output is a mean of the channels of its values, the same mean for
    every token; tokens meet in the sums of K^T Q alone, and padding adds nothing to those. So it
    has no weights over keys to show, takes no mask but padding, and knows positions only through
    `embed`. Time T*D^2/H, memory T*D and Dh^2 a head, no cache: it cannot be causal, cross or
    incremental, only an encoder's self-attention.

    Args:
        num_heads: query heads H.
        num_kv_heads: key and value heads G, dividing H.
        head_dim: width of a head Dh.
        dropout: 0; it has no weights over keys to drop.
        tau: the temperature of every head at the start, above 0; learned.

    Raises:
        UserError: for a temperature that is not above 0.
    """

    abilities = Abilities(
        bidirectional=True,
        causal=False,
        cross=False,
        incremental=False,
        hooks=frozenset({"embed"}),
        dropout=False,
        weights=False,
        normalised=False,
    )

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dropout: float = 0.0,
        tau: float = 1.0,
    ) -> None:
        super().__init__(num_heads, num_kv_heads, head_dim, dropout)
        if tau <= 0:
            raise UserError(f"attention.kernel.tau must be above 0, got {tau}")
        self.log_tau = nn.Parameter(torch.full((num_heads,), math.log(tau)))  # tau stays above 0

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
    ) -> Tensor:
        if mask.causal or mask.extra is not None:
            raise UserError("XCAKernel takes no mask but padding: its tokens meet in sums over all")
        q, keys, values = query, new.keys, new.values
        if mask.real is not None:
            hidden = ~mask.real[:, None, :, None]
            q, keys, values = (x.masked_fill(hidden, 0.0) for x in (q, keys, values))
        groups = self.num_kv_heads, self.num_heads // self.num_kv_heads
        rows = _unit(q).unflatten(1, groups).transpose(3, 4).flatten(2, 3)  # (B, G, H/G*Dh, T)
        scores = (rows @ _unit(keys)).unflatten(2, (groups[1], -1))  # (B, G, H/G, Dh, Dh)
        tau = self.log_tau.exp().unflatten(0, groups)[..., None, None]
        mix = (scores / tau).softmax(dim=-1).flatten(2, 3)  # (B, G, H/G*Dh, Dh)
        context = values @ mix.to(values.dtype).transpose(2, 3)  # (B, G, T, H/G*Dh)
        return context.unflatten(3, (groups[1], -1)).transpose(2, 3).flatten(1, 2)

    def make_cache(self, beams: int) -> Cache:
        raise UserError("XCAKernel cannot decode; it fits an encoder's self-attention")


def _unit(x: Tensor) -> Tensor:
    """Every channel (B, H, :, c) divided by its length over the tokens; 0 stays 0."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.normalize(wide, dim=2).to(x.dtype)
