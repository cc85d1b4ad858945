"""First-order linear recurrence, by token and in parallel: h_t = a_t * h_{t-1} + b_t."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Decays(NamedTuple):
    """Products of the decays of C tokens."""

    between: Tensor  # (..., C, C), from token j + 1 to i at [i, j]; 0 for j > i
    since: Tensor  # (..., C), of the first tokens up to i
    until: Tensor  # (..., C), of the tokens after i


def products(log_decay: Tensor) -> Decays:
    """Return the products of decays from their logs (..., C), each at most 0.

    They are differences of sums. After a nearly closed gate (a log of -10,000), sums in float32 say
    nothing of the open gates behind it, so each is held as two numbers of this type, one for what
    the other rounds away. Logs below that of the least number count as that: their decay is 0.
    """
    kind, size = torch.finfo(log_decay.dtype), log_decay.shape[-1]
    least = math.log(kind.smallest_normal * kind.eps) - 1
    wide = torch.float32 if log_decay.device.type == "mps" else torch.float64  # it has no other
    log_sums = log_decay.clamp(min=least).to(wide).cumsum(dim=-1)
    since = log_sums.to(log_decay.dtype)
    error = (log_sums - since).to(log_decay.dtype).detach()  # `since` has the gradient
    later = torch.ones(size, size, dtype=torch.bool, device=since.device).triu(1)
    between = (since[..., None] - since[..., None, :]).add_(error[..., None] - error[..., None, :])
    until = (log_sums[..., -1:] - log_sums).to(log_decay.dtype)
    return Decays(between.masked_fill_(later, -torch.inf).exp_(), since.exp(), until.exp())


def in_chunks(x: Tensor, size: int) -> Tensor:
    """Split into chunks, (B, H, T, ...) -> (B, H, N, C, ...), padding the last of several."""
    if x.shape[2] <= size:  # compiled once for any length
        return x.unsqueeze(2)
    return F.pad(x, (0, 0) * (x.ndim - 3) + (0, -x.shape[2] % size)).unflatten(2, (-1, size))


def scan_by_token(decay: Tensor, new: Tensor, first_state: Tensor | None = None) -> Tensor:
    """Compute the recurrence token by token.

    Args:
        decay: a, (B, T, ...).
        new: b, (B, T, ...), of the shape of `decay` or one that it broadcasts to.
        first_state: h_0, (B, ...); None for zeros.

    Returns:
        h_1 to h_T, (B, T, ...).
    """
    state, states = torch.zeros_like(new[:, 0]) if first_state is None else first_state, []
    for a, b in zip(decay.unbind(1), new.unbind(1), strict=True):
        state = a * state + b
        states.append(state)
    return torch.stack(states, dim=1)


def scan_in_parallel(
    decay: Tensor, new: Tensor, first_state: Tensor | None = None, chunk: int = 16
) -> Tensor:
    """Compute `scan_by_token` by log2(`chunk`) passes over chunks, and the same between chunks.

    Each pass doubles the number of earlier tokens that a state covers (Hillis and Steele 1986).
    Nothing is divided by a decay, so decays may be 0. Time T log2(`chunk`).
    """
    if first_state is not None:
        new = torch.cat((new[:, :1] + (decay[:, 0] * first_state)[:, None], new[:, 1:]), dim=1)
    steps = new.shape[1]
    if steps <= chunk or chunk < 2:
        return _doubled(decay, new)[1]
    decays, states = _doubled(_chunks(decay, chunk), _chunks(new, chunk))
    count = -(-steps // chunk)
    decays, states = decays.unflatten(0, (-1, count)), states.unflatten(0, (-1, count))
    ends = scan_in_parallel(decays[:, :, -1], states[:, :, -1], None, chunk)  # (B, N, ...)
    past = torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), dim=1)
    return (states + decays * past[:, :, None]).flatten(1, 2)[:, :steps]


def _doubled(decay: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return the products of decays from the first token on, and states, both (B, T, ...)."""
    reach = 1
    while reach < new.shape[1]:
        added = decay[:, reach:] * new[:, :-reach]
        new = torch.cat((new[:, :reach], new[:, reach:] + added), dim=1)
        decay = torch.cat((decay[:, :reach], decay[:, reach:] * decay[:, :-reach]), dim=1)
        reach *= 2
    return decay, new


def _chunks(x: Tensor, size: int) -> Tensor:
    """Split into chunks, the last one filled with zeros: (B, T, ...) -> (B*N, C, ...)."""
    missing = -x.shape[1] % size
    if missing:
        x = torch.cat((x, x.new_zeros(len(x), missing, *x.shape[2:])), dim=1)
    return x.unflatten(1, (-1, size)).flatten(0, 1)
