"""Mamba-2, a state-space model whose decays, inputs and outputs depend on the token."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.checking import BadValue, Count, Width
from seqattn.extras.mixers.base import (
    RecurrentMixer,
    ShortConvolution,
    States,
    half_reversed,
    without_padding,
)
from seqattn.extras.mixers.linear_scan import products, scan_in_parallel
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide


class Mamba2(RecurrentMixer):
    """The block of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060, section 7.1) with one group.

    A projection gives values x, gates z, keys B, queries C and a step size for each head; a short
    causal convolution and SiLU follow on x, B and C. Each head has a state of state_dim vectors:
    S_t = exp(-a d_t) S_{t-1} + d_t x_t B_t^T, y_t = S_t C_t + D x_t, with step sizes d_t =
    softplus(...) and a learned rate a. The output is a projection of RMSNorm(y * SiLU(z)).

    In an encoder, half of the heads read from right to left, with B and C of the same tokens; the
    convolution still looks to the left. A pass takes time T*D*(D + C + N) and memory T*(D + H*C),
    times small constants, for chunks of C tokens (section 6) and N = state_dim; the cache holds
    expand*D*N numbers and the convolution's last inputs, independent of the length of the past.
    All but the projections is in at least float32.

    Args:
        query_dim: width D.
        memory_dim: the same width.
        num_heads: even number of heads H, which divides expand * D; also of the layer's
            cross-attention, unless that is set.
        expand: width of x and z, as a multiple of D.
        state_dim: width N of B and C.
        conv_width: tokens that the convolution sees.
        chunk: tokens whose products are materialized together in training. It changes speed and
            memory, not the result.
        bias: add biases to the two projections.

    Raises:
        UserError: the number of heads is odd or does not divide the inner width.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        num_heads: Count,
        expand: Count = 2,
        state_dim: Width = 64,
        conv_width: Count = 4,
        chunk: Count = 64,
        bias: bool = False,
    ) -> None:
        super().__init__()
        inner = expand * query_dim
        if num_heads % 2 or inner % num_heads:
            reason = f"must be even and divide {expand} * model.dim ({inner}), got {num_heads}"
            raise BadValue("num_heads", reason)
        self.num_heads, self.chunk = num_heads, chunk
        self.widths = [inner, inner + 2 * state_dim, num_heads]  # of z; x, B and C; steps
        self.inner = Linear(query_dim, sum(self.widths), bias=bias)
        self.convolution = ShortConvolution(self.widths[1], conv_width)
        steps = torch.empty(num_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.step_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))  # softplus inverted
        self.log_rates = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(num_heads))
        self.scale = nn.Parameter(torch.ones(inner))
        self.output = Linear(inner, query_dim, bias=bias)

    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        projected = self.inner(x)
        with torch.autocast(x.device.type, enabled=False):
            gates, convolved, steps = wide(projected).split(self.widths, dim=2)
            convolved, states["inputs"] = self.convolution(convolved, real, states.get("inputs"))
            y = self._mix(without_padding(F.silu(convolved), real), steps, real, both_ways, states)
            y = F.rms_norm(y * F.silu(gates), self.scale.shape, wide(self.scale), 1e-5)
        return self.output(y.to(projected.dtype))

    def _mix(
        self, xbc: Tensor, steps: Tensor, real: Tensor | None, both_ways: bool, states: States
    ) -> Tensor:
        """Return y of all heads, (B, T, inner)."""
        inner = self.widths[0]
        values, keys, queries = xbc.split([inner, *[(xbc.shape[2] - inner) // 2] * 2], dim=2)
        values = values.unflatten(2, (self.num_heads, -1))  # (B, T, H, P)
        keys, queries = keys[:, :, None], queries[:, :, None]  # (B, T, 1, N)
        steps = without_padding(F.softplus(steps + self.step_bias), real)  # (B, T, H)
        new, log_decay = values * steps[..., None], -steps * self.log_rates.exp()
        if both_ways:
            new, log_decay = half_reversed(new), half_reversed(log_decay)
            keys, queries = (half_reversed(part.repeat(1, 1, 2, 1)) for part in (keys, queries))
        scan = states_by_token if xbc.shape[1] == 1 else states_by_chunk
        y, states["sums"] = scan(new, log_decay, keys, queries, states.get("sums"), self.chunk)
        if both_ways:
            y = half_reversed(y)
        return (y + values * self.skip[:, None]).flatten(2)


def states_by_token(
    new: Tensor,
    log_decay: Tensor,
    keys: Tensor,
    queries: Tensor,
    first_state: Tensor | None = None,
    chunk: int = 1,
) -> tuple[Tensor, Tensor]:
    """Compute S_t = exp(log_decay_t) S_{t-1} + new_t keys_t^T and y_t = S_t queries_t by token.

    Args:
        new: (B, T, H, P).
        log_decay: (B, T, H), at most 0.
        keys: (B, T, G, N), of H/G heads each.
        queries: (B, T, G, N).
        first_state: S_0, (B, H, P, N); None for zeros.
        chunk: not used.

    Returns:
        y, (B, T, H, P), and the last state (B, H, P, N).
    """
    heads = new.shape[2] // keys.shape[2]
    keys, queries = (part.repeat_interleave(heads, dim=2) for part in (keys, queries))
    state = new.new_zeros(*new[:, 0].shape, keys.shape[3]) if first_state is None else first_state
    outputs = []
    for t in range(new.shape[1]):
        added = new[:, t, :, :, None] * keys[:, t, :, None]  # (B, H, P, N)
        state = log_decay[:, t, :, None, None].exp() * state + added
        outputs.append((state @ queries[:, t, ..., None])[..., 0])
    return torch.stack(outputs, dim=1), state


def states_by_chunk(
    new: Tensor,
    log_decay: Tensor,
    keys: Tensor,
    queries: Tensor,
    first_state: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """Compute `states_by_token` with matrix products within chunks and a scan between them.

    Within a chunk, y_i = sum over j <= i of (queries_i . keys_j) exp(sum of log decays from j + 1
    to i) new_j; no exponent is above 0.
    """
    length, groups = new.shape[1], keys.shape[2]
    size = min(chunk, length)

    def in_chunks(x: Tensor, heads: int) -> Tensor:
        """(B, T, H, X) -> (B, N, G, H/G, C, X), filled up with zeros."""
        x = F.pad(x, (0, 0, 0, 0, 0, -length % size)).unflatten(1, (-1, size))
        return x.unflatten(3, (groups, heads)).permute(0, 1, 3, 4, 2, 5)

    heads = new.shape[2] // groups
    new, log_decay = in_chunks(new, heads), in_chunks(log_decay[..., None], heads)
    keys, queries = in_chunks(keys, 1), in_chunks(queries, 1)
    between, since, until = products(log_decay[..., 0])  # of (B, N, G, H/G, C)
    near = (queries @ keys.mT * between) @ new  # (B, N, G, H/G, C, P)
    sums = (until[..., None] * new).mT @ keys  # (B, N, G, H/G, P, N)
    state = None if first_state is None else first_state.unflatten(1, (groups, heads))
    states = scan_in_parallel(since[..., -1:, None], sums, state)
    y = near
    if state is not None or states.shape[1] > 1:
        first = torch.zeros_like(states[:, 0]) if state is None else state
        past = torch.cat((first[:, None], states[:, :-1]), dim=1)
        y = y + since[..., None] * (queries @ past.mT)
    y = y.permute(0, 1, 4, 2, 3, 5).flatten(3, 4).flatten(1, 2)[:, :length]
    return y, states[:, -1].flatten(1, 2)
