"""RWKV-7: a state whose channels decay apart, and whose entries are replaced in part."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.checking import BadValue, Count, Width
from seqattn.extras.mixers.base import (
    RecurrentMixer,
    States,
    half_reversed,
    rows_of,
    without_padding,
)
from seqattn.extras.mixers.linear_scan import in_chunks
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide

_FASTEST = -0.6065306597126334  # -exp(-1/2), the least log of a decay
_LONGEST = 128  # tokens whose decays float32 can divide by


class Steps(NamedTuple):
    """Inputs of the recurrence for T tokens, each (B, H, T, Dh), of one dtype.

    A token with log_decay, keys and rates 0, as all padding has, does not change the state.
    """

    queries: Tensor  # r
    log_decay: Tensor  # log of w, by channel, from -0.61 to 0
    keys: Tensor  # the replacement key
    values: Tensor
    removed: Tensor  # the removal key, of length at most 1
    rates: Tensor  # a, the share of a channel that is removed, from 0 to 1


def loop(steps: Steps, state: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the recurrence token by token (Peng et al. 2025, arXiv 2503.14456, section 4.2).

    S_t = S_(t-1) (diag(w_t) - k^_t^T (a_t * k^_t)) + v_t^T k~_t, and o_t = r_t S_t^T.

    Args: state: (B, H, Dh, Dh), the transpose of S before the first token.

    Returns:
        The outputs (B, H, T, Dh), and the state after the last token.
    """
    outputs = []
    for r, log_decay, k, v, removed, rate in zip(*(part.unbind(2) for part in steps)):
        old = removed[..., None, :] @ state  # (B, H, 1, Dh), what the state has for the key
        state = state * log_decay.exp()[..., None] - (rate * removed)[..., None] * old
        state = state + k[..., None] * v[..., None, :]
        outputs.append((r[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, dim=2), state


def chunked(steps: Steps, state: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Compute `loop` by chunks of C tokens, at most 128.

    What the state has for the keys of a chunk follows from a triangular system, as for the delta
    rule. Keys are divided by the decay since the chunk's beginning, at least exp(-0.61 C).
    """
    length = steps.queries.shape[2]
    r, log_decay, k, v, removed, rate = (in_chunks(part, chunk) for part in steps)
    total = log_decay.cumsum(dim=3)  # (B, H, N, C, Dh)
    readers = torch.cat((r * total.exp(), removed * (total - log_decay).exp()), dim=3)
    writers = torch.cat([part * (-total).exp() for part in (k, -rate * removed)], dim=3)
    scores = readers @ writers.mT  # (B, H, N, 2C, 2C)
    (key, removal), (past, system) = (rows.chunk(2, dim=4) for rows in scores.chunk(2, dim=3))
    past = past.tril(-1) @ v
    outputs = []
    parts = (v, readers, writers, key.tril(), removal.tril(), past, -system, total[..., -1:, :].mT)
    for v, read, write, key, removal, past, system, decay in zip(*(x.unbind(2) for x in parts)):
        now, old = (read @ state).chunk(2, dim=2)
        old = torch.linalg.solve_triangular(system, old + past, upper=False, unitriangular=True)
        outputs.append(now + key @ v + removal @ old)
        state = decay.exp() * (state + write.mT @ torch.cat((v, old), dim=2))
    return torch.stack(outputs, dim=2).flatten(2, 3)[:, :, :length], state


class RWKV7(RecurrentMixer):
    """Time mixing of RWKV-7: a decay for each channel, and a delta rule for each head.

    Peng et al. 2025, arXiv 2503.14456, section 4. Each input is a mixture of a token and the one
    before; decay, removal rate and gate come from networks of low rank. The residual of values
    between layers is left out, as a layer sees no other, and the feed-forward layers stay the
    model's.

    Time T*D^2 + T*H*(C + Dh)*Dh for chunks of C tokens, memory T*(D + C*H); the cache holds Dh^2
    numbers per head, independent of the length of the past, and the last input. In an encoder, half
    of the heads read from right to left, and half of the channels mix with the token after. The
    state is in at least float32.

    Args:
        query_dim: width D.
        memory_dim: the same width.
        num_heads: even number of heads H, also of the layer's cross-attention unless that is set.
        rank: inner width of the networks of decay, removal rate and gate.
        chunk: tokens computed together in a pass over many, at most 128. It changes speed and
            memory, not the result.

    Raises:
        UserError: num_heads is odd or does not divide query_dim, or a chunk is too long.
    """

    not_matrices = ("mixture",)  # shares, which begin at a half

    def __init__(
        self, query_dim: int, memory_dim: int, num_heads: Count, rank: Width = 32, chunk: Count = 32
    ) -> None:
        super().__init__()
        if num_heads % 2 or query_dim % num_heads:
            must = f"must be even and divide model.dim ({query_dim})"
            raise BadValue("num_heads", f"{must}, got {num_heads}")
        if chunk > _LONGEST:
            raise BadValue("chunk", f"must be at most {_LONGEST}, got {chunk}")
        self.num_heads, self.chunk = num_heads, chunk
        self.mixture = nn.Parameter(torch.full((6, query_dim), 0.5))
        self.projections, self.downs, self.ups = (
            nn.ModuleList(Linear(width, out, bias=False) for _ in range(3))
            for width, out in ((query_dim, query_dim), (query_dim, rank), (rank, query_dim))
        )
        # decays from slow to fast within each head, and half of a key removed at first
        spread = torch.linspace(-6, 1, query_dim // num_heads).repeat(num_heads)
        self.decay = nn.Parameter(spread)
        self.rate, self.bonus, self.norm_bias = _vectors(0.0, query_dim)
        self.removal, self.replacement, self.norm_weight = _vectors(1.0, query_dim)
        self.output = Linear(query_dim, query_dim, bias=False)
        for linear in (*self.projections, *self.downs, *self.ups, self.output):
            nn.init.xavier_uniform_(linear.weight)

    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        x = without_padding(x, real)
        mixed = x + (self._shifted(x, real, both_ways, states) - x) * self.mixture[:, None, None]
        r, k, v = (linear(part) for linear, part in zip(self.projections, mixed[:3]))
        decay, rate, gate = (linear(part) for linear, part in zip(self.downs, mixed[3:]))
        inner = decay.tanh(), rate, gate.sigmoid()
        decay, rate, gate = (linear(part) for linear, part in zip(self.ups, inner))
        with torch.autocast(x.device.type, enabled=False):
            rate, k = (wide(rate) + self.rate).sigmoid(), wide(k)
            removed, keys = k * self.removal, k * (1 + (rate - 1) * self.replacement)
            log_decay = _FASTEST * (wide(decay) + self.decay).sigmoid()
            log_decay, keys, rate = (without_padding(x, real) for x in (log_decay, keys, rate))
            parts = (wide(r), log_decay, keys, wide(v), removed, rate)
            by_head = Steps(*(part.unflatten(2, (self.num_heads, -1)) for part in parts))
            bonus = by_head.queries * by_head.keys * self.bonus.unflatten(0, (self.num_heads, -1))
            bonus = bonus.sum(dim=3, keepdim=True) * by_head.values  # (B, T, H, Dh)
            by_head = by_head._replace(removed=F.normalize(by_head.removed, dim=3))
            flipped = half_reversed if both_ways else lambda part: part
            steps = Steps(*(flipped(part).transpose(1, 2) for part in by_head))
            zeros = steps.keys.new_zeros(len(x), self.num_heads, *steps.keys.shape[3:] * 2)
            state, is_step = states.get("state", zeros), x.shape[1] == 1
            outputs, state = loop(steps, state) if is_step else chunked(steps, state, self.chunk)
            states["state"], outputs = state, flipped(outputs.transpose(1, 2))  # (B, T, H, Dh)
            outputs = F.layer_norm(outputs, outputs.shape[3:], eps=1e-5 * outputs.shape[3])
        outputs, bonus = (part.flatten(2).to(gate.dtype) for part in (outputs, bonus))
        outputs = self.norm_weight * outputs + self.norm_bias + bonus
        return without_padding(self.output(gate * outputs), real)

    def _shifted(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        """Return the token before each of x (B, T, D), or after it in half of the channels."""
        past = states.get("input", x.new_zeros(len(x), 1, x.shape[2]))
        inputs = torch.cat((past, half_reversed(x) if both_ways else x), dim=1)
        if real is None:
            states["input"] = inputs[:, -1:]
        else:
            states["input"] = rows_of(inputs, real.sum(1, keepdim=True))
        return half_reversed(inputs[:, :-1]) if both_ways else inputs[:, :-1]


def _vectors(value: float, width: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((width,), value)) for _ in range(3)]
