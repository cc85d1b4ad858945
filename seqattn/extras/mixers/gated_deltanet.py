"""Gated DeltaNet: a state that decays, and whose entries are overwritten by the delta rule."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Steps(NamedTuple):
    """Inputs of the gated delta rule for T tokens, all of one dtype.

    A token with log_decay and write 0, as all padding has, does not change the state.
    """

    queries: Tensor  # (B, H, T, Dk)
    keys: Tensor  # (B, H, T, Dk), of length at most 1
    values: Tensor  # (B, H, T, Dv)
    log_decay: Tensor  # (B, H, T), log of alpha, at most 0
    write: Tensor  # (B, H, T), beta, the share of an entry that is overwritten, from 0 to 1


def loop(steps: Steps, state: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the gated delta rule token by token (Yang et al. 2024, arXiv 2412.06464, eq. 10).

    S_t = S_(t-1) alpha_t (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, and o_t = S_t q_t.

    Args:
        steps: queries, keys, values and gates.
        state: (B, H, Dk, Dv), the transpose of S before the first token.

    Returns:
        The outputs (B, H, T, Dv), and the state after the last token.
    """
    outputs = []
    for q, k, v, log_decay, write in zip(*(part.unbind(2) for part in steps)):
        state = state * log_decay.exp()[..., None, None]
        error = v - (k[..., None, :] @ state)[..., 0, :]  # (B, H, Dv), what the state has wrong
        state = state + k[..., None] * (write[..., None] * error)[..., None, :]
        outputs.append((q[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, dim=2), state


def chunked(steps: Steps, state: Tensor, chunk: int = 64) -> tuple[Tensor, Tensor]:
    """Compute `loop` by chunks of C tokens (eq. 11 to 14, section 3.3).

    Within a chunk, the product of all I - beta k k^T has the form I - sum of w_i k_i^T, whose
    w follow from a triangular system (WY representation). Only the state passes between chunks.
    """
    length = steps.queries.shape[2]
    missing = -length % (chunk := min(chunk, length))
    q, k, v, log_decay, write = (
        F.pad(part, (0, 0) * (part.ndim - 3) + (0, missing)).unflatten(2, (-1, chunk))
        for part in steps
    )  # (B, H, N, C, ...)
    since = log_decay.cumsum(dim=3)  # log of the decay since before the chunk, this token included
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (since[..., None] - since[..., None, :]).masked_fill(later, -torch.inf).exp()
    written = write[..., None] * k
    system = written @ k.mT * between  # (B, H, N, C, C), read below its diagonal, which counts as 1
    right = torch.cat((write[..., None] * v, written * since.exp()[..., None]), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new, old = solved.split((v.shape[-1], k.shape[-1]), dim=-1)
    weights = q @ k.mT * between
    q = q * since.exp()[..., None]
    k = k * (since[..., -1:] - since).exp()[..., None]
    kept = since[..., -1].exp()[..., None, None]
    outputs = []
    for part in zip(*(x.unbind(2) for x in (q, k, new, old, weights, kept))):
        queries, keys, own, seen, inner, share = part
        error = own - seen @ state
        outputs.append(queries @ state + inner @ error)
        state = state * share + keys.mT @ error
    return torch.stack(outputs, dim=2).flatten(2, 3)[:, :, :length], state
