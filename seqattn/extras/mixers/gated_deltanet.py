"""Gated DeltaNet: a state that decays, and whose entries are overwritten by the delta rule."""

import math
from typing import NamedTuple

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
from seqattn.extras.mixers.linear_scan import in_chunks, products
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide

_EPSILON = 1e-6


class Steps(NamedTuple):
    """Inputs of the gated delta rule for T tokens, all of one dtype.

    A token with log_decay and write 0, as all padding has, does not change the state.
    """

    queries: Tensor  # (B, H, T, Dk)
    keys: Tensor  # (B, H, T, Dk), of length at most 1
    values: Tensor  # (B, H, T, Dv)
    log_decay: Tensor  # (B, H, T), log of alpha, at most 0
    write: Tensor  # (B, H, T), beta, the share of an entry that is overwritten, from 0 to 1


def loop(steps: Steps, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Apply the gated delta rule token by token (Yang et al. 2024, arXiv 2412.06464, eq. 10).

    S_t = S_(t-1) alpha_t (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, and o_t = S_t q_t.

    Args:
        steps: queries, keys, values and gates.
        state: (B, H, Dk, Dv), the transpose of S before the first token; None for zeros.

    Returns:
        The outputs (B, H, T, Dv), and the state after the last token.
    """
    if state is None:
        state = _zeros(steps)
    outputs = []
    for q, k, v, log_decay, write in zip(*(part.unbind(2) for part in steps)):
        state = state * log_decay.exp()[..., None, None]
        error = v - (k[..., None, :] @ state)[..., 0, :]  # (B, H, Dv), what the state has wrong
        state = state + k[..., None] * (write[..., None] * error)[..., None, :]
        outputs.append((q[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, dim=2), state


def chunked(steps: Steps, state: Tensor | None = None, chunk: int = 64) -> tuple[Tensor, Tensor]:
    """Compute `loop` by chunks of C tokens (section 3.3).

    The product of a chunk's I - beta_t k_t k_t^T is I - sum of w_t k_t^T, whose w_t follow from a
    triangular system (WY representation). Only the state passes from chunk to chunk.
    """
    length = steps.queries.shape[2]
    q, k, v, log_decay, write = (in_chunks(part, chunk) for part in steps)  # (B, H, N, C, ...)
    between, since, until = products(log_decay)
    k_written, v_written = (write[..., None] * part for part in (k, v))
    system = k_written @ k.mT * between  # (B, H, N, C, C), its diagonal counts as 1
    weights = q @ k.mT * between
    k = k * until[..., None]
    if state is None and q.shape[2] == 1:
        errors = _solved(system, v_written)
        return (weights @ errors)[:, :, 0, :length], (k.mT @ errors)[:, :, 0]
    right = torch.cat((v_written, k_written * since[..., None]), dim=-1)
    added, removed = _solved(system, right).split((v.shape[-1], k.shape[-1]), dim=-1)
    q = q * since[..., None]
    decays = since[..., -1, None, None]
    if state is None:
        state = _zeros(steps)
    outputs = []
    for part in zip(*(x.unbind(2) for x in (q, k, added, removed, weights, decays))):
        queries, keys, values, old, inner, share = part
        error = values - old @ state
        outputs.append(queries @ state + inner @ error)
        state = state * share + keys.mT @ error
    return torch.stack(outputs, dim=2).flatten(2, 3)[:, :, :length], state


def _zeros(steps: Steps) -> Tensor:
    return steps.keys.new_zeros(*steps.keys.shape[:2], steps.keys.shape[3], steps.values.shape[3])


def _solved(system: Tensor, right: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)


class GatedDeltaNet(RecurrentMixer):
    """Linear attention whose state decays by gates and is corrected by the delta rule.

    Yang et al. 2024, arXiv 2412.06464: eq. 10 and the block of section 3.4. Queries, keys and
    values pass a short convolution and SiLU; queries and keys are scaled to length 1; the output of
    a head is normalized, and multiplied by a gate. The default widths make as many parameters as
    those of multi-head attention.

    Time T*D^2 + T*H*(C + Dk)*(Dk + Dv) for chunks of C tokens, memory T*(D + C*H); the cache holds
    Dk*Dv numbers per head, independent of the length of the past, and the convolution's last
    inputs. In an encoder, half of the heads read from right to left. The state is in at least
    float32.

    Args:
        query_dim: width D.
        memory_dim: the same width.
        num_heads: even number of heads H, also of the layer's cross-attention unless that is set.
        head_dim: width Dv of a head's values; None for query_dim / num_heads.
        key_dim: width Dk of a head's queries and keys; None for half of Dv.
        conv_width: tokens that the convolution sees.
        chunk: tokens computed together in a pass over many. It changes speed and memory, not the
            result.

    Raises:
        UserError: num_heads is odd, or does not divide query_dim where `head_dim` is None.
    """

    def __init__(
        self,
        query_dim: int,
        memory_dim: int,
        num_heads: Count,
        head_dim: Width | None = None,
        key_dim: Width | None = None,
        conv_width: Count = 4,
        chunk: Count = 64,
    ) -> None:
        super().__init__()
        if num_heads % 2 or (head_dim is None and query_dim % num_heads):
            reason = f"must be even and divide model.dim ({query_dim}), got {num_heads}"
            raise BadValue("num_heads", reason)
        self.num_heads, self.chunk = num_heads, chunk
        self.head_dim = head_dim or query_dim // num_heads
        self.key_dim = key_dim or -(-self.head_dim // 2)
        mixed = 2 * self.key_dim + self.head_dim
        self.projection = Linear(query_dim, num_heads * (mixed + self.head_dim), bias=False)
        self.gates = Linear(query_dim, 2 * num_heads, bias=False)
        self.convolution = ShortConvolution(num_heads * mixed, conv_width, bias=False)
        steps = torch.empty(num_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.step_bias = nn.Parameter(steps.expm1().log())  # softplus inverted
        self.log_rates = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 16).log())
        self.norm = nn.RMSNorm(self.head_dim, eps=_EPSILON)
        self.output = Linear(num_heads * self.head_dim, query_dim, bias=False)
        for linear in (self.projection, self.gates, self.output):
            nn.init.xavier_uniform_(linear.weight)

    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        heads = self.projection(x).unflatten(2, (self.num_heads, -1))  # (B, T, H, 2*Dk + 2*Dv)
        mixed, gate = heads.split((heads.shape[3] - self.head_dim, self.head_dim), dim=3)
        mixed, rates = without_padding(mixed, real), wide(self.gates(x))
        decay, write = rates.chunk(2, dim=2)  # (B, T, H)
        with torch.autocast(x.device.type, enabled=False):
            decay = -wide(self.log_rates).exp() * F.softplus(decay + self.step_bias)
            decay, write = (without_padding(part, real) for part in (decay, write.sigmoid()))
            if both_ways:
                mixed, decay, write = (half_reversed(part) for part in (mixed, decay, write))
                real = None  # some of the padding comes first now, where nothing precedes it
            mixed, states["inputs"] = self.convolution(mixed.flatten(2), real, states.get("inputs"))
            mixed = wide(F.silu(mixed)).unflatten(2, (self.num_heads, -1))
            q, k, v = mixed.split((self.key_dim, self.key_dim, self.head_dim), dim=3)
            q, k = (part * (part.square().sum(3, True) + _EPSILON).rsqrt() for part in (q, k))
            parts = (q * self.key_dim**-0.5, k, v, decay, write)
            steps = Steps(*(part.transpose(1, 2) for part in parts))
            state, single = states.get("state"), x.shape[1] == 1
            outputs, state = loop(steps, state) if single else chunked(steps, state, self.chunk)
            states["state"], outputs = state, outputs.transpose(1, 2)  # -> (B, T, H, Dv)
            if both_ways:
                outputs = half_reversed(outputs)
            outputs = F.rms_norm(outputs, (self.head_dim,), eps=_EPSILON).to(gate.dtype)
        outputs = self.norm.weight * outputs * F.silu(gate)
        return self.output(outputs.flatten(2))
