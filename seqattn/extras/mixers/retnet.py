"""RetNet: attention without a softmax, whose weights fall by a fixed rate with distance."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.checking import BadValue, Count
from seqattn.extras.mixers.base import RecurrentMixer, States, half_reversed, without_padding
from seqattn.extras.mixers.mamba2 import states_by_chunk, states_by_token
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide
from seqattn.positions.base import Stack
from seqattn.positions.rotary import RotaryPosition


class RetNet(RecurrentMixer):
    """Multi-scale retention (Sun et al. 2023, arXiv 2307.08621, eq. 5 to 8).

    The weight of token m for token n is g^(n-m) q_n . k_m, with q and k rotated by their positions
    and g = 1 - 2^(-5-h) in head h. Each head's output is divided by its root mean square, as in the
    authors' code, and multiplied by a gate. As a recurrence, S_n = g S_(n-1) + v_n k_n^T, and the
    output is S_n q_n.

    In an encoder, half of the heads read from right to left; heads are ordered so that both halves
    have near and far sight. Time T*D*expand*(D + C + Dh) and memory T*(D*expand + C*H) for chunks
    of C tokens and Dh = D / H; the cache holds expand*D*Dh numbers, independent of the length of
    the past. All but the projections is in at least float32.

    Args:
        query_dim: width D.
        memory_dim: the same width.
        num_heads: even number of heads H; also of the layer's cross-attention, unless that is set.
        expand: width of values and gates, as a multiple of D.
        chunk: tokens whose products are materialized together in training. It changes speed and
            memory, not the result.

    Raises:
        UserError: the number of heads is odd, or does not divide D into an even width.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        num_heads: Count,
        expand: Count = 2,
        chunk: Count = 64,
    ) -> None:
        super().__init__()
        if num_heads % 2 or query_dim % (2 * num_heads):
            reason = f"must be even and divide model.dim / 2 ({query_dim // 2}), got {num_heads}"
            raise BadValue("num_heads", reason)
        self.num_heads, self.chunk = num_heads, chunk
        inner = expand * query_dim
        self.widths = [query_dim, query_dim, inner, inner]  # of queries, keys, values and gates
        self.inner = Linear(query_dim, sum(self.widths), bias=False)
        self.output = Linear(inner, query_dim, bias=False)
        for projection in (*self.inner.weight.data.split(self.widths), self.output.weight):
            nn.init.xavier_uniform_(projection)
        self.rotary = RotaryPosition(Stack(query_dim, num_heads))

    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        projected, (rows, steps) = self.inner(x), x.shape[:2]
        order = torch.arange(self.num_heads, device=x.device).view(-1, 2).T.flatten()  # 0, 2, 1, 3
        with torch.autocast(x.device.type, enabled=False):
            *mixed, gates = wide(projected).split(self.widths, dim=2)
            queries, keys, values = (part.unflatten(2, (self.num_heads, -1)) for part in mixed)
            decay = torch.log1p(-(2.0 ** (-5 - order.to(values.dtype))))
            decay = without_padding(decay.expand(rows, steps, -1), real)  # (B, T, H)
            values = without_padding(values, real)
            past_length = states.get("length", torch.zeros(rows, dtype=torch.long, device=x.device))
            states["length"] = past_length + (steps if real is None else real.sum(dim=1))
            if both_ways:
                queries, keys, values, decay = map(half_reversed, (queries, keys, values, decay))
            positions = past_length[:, None] + torch.arange(steps, device=x.device)
            queries, keys = (
                self.rotary.rotate(part.transpose(1, 2), positions).transpose(1, 2)
                for part in (queries, keys * keys.shape[3] ** -0.5)
            )
            scan = states_by_token if steps == 1 else states_by_chunk
            state = states.get("state")
            y, states["state"] = scan(values, decay, keys, queries, state, self.chunk)
            if both_ways:
                y = half_reversed(y)
            y = F.rms_norm(y, y.shape[3:], eps=1e-6).flatten(2) * F.silu(gates)
        return self.output(y.to(projected.dtype))
