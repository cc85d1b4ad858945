"""Projection to the vocabulary and smoothed cross-entropy on a GPU, by one kernel over the logits.

The products write each logit once and read its gradient twice; between them the kernel reads a row
of logits from memory once and overwrites it with its gradient: 4 bytes a logit in half precision,
where separate operations in float32 move 36. Lines of a row that are read again are in the cache.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from seqattn.screen import say

_NUMBERS = 1 << 29
"""Logits of a block: 1 GiB in half precision. Each block adds a pass over the weight's gradient."""
_ALIGNMENT = 8  # logits between rows are a multiple of it, as products of odd widths are slower


@cache
def _works(device: torch.device) -> bool:
    """Return True if Triton is there and can compile, for which it needs a C compiler."""
    if find_spec("triton") is None:
        return False
    try:
        targets = torch.zeros(1, dtype=torch.long, device=device)
        logits, sums = torch.zeros(1, 8, device=device), torch.zeros(3, 1, device=device)
        to_gradients(logits, targets, sums, 0.1)
    except Exception as error:  # of many kinds, by the compiler and the driver
        line = " ".join(str(error).split())[:200]
        say(f"Triton cannot compile the loss, which takes more time without it: {line}")
        return False
    return True


def is_available_for(x: Tensor) -> bool:
    """Return True on a GPU with a working Triton, outside compiled code, except in float64."""
    fits = x.is_cuda and x.dtype != torch.float64
    return fits and not torch.compiler.is_compiling() and _works(x.device)


def smoothed_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, smoothing: float, kind: torch.dtype
) -> tuple[Tensor, list[Tensor | None]]:
    """Return sums over tokens and gradients of the smoothed loss, see `vocabulary_loss`.

    Args:
        x: (N, D) features.
        weight: (V, D).
        targets: (N,) ids, without padding.
        smoothing: share of a target's probability spread over the vocabulary.
        kind: type of the products.

    Returns:
        float32 (4,) nll, spread, correct and 0; gradients of x and weight, None for a frozen one.
    """
    narrow, output = x.to(kind), weight.to(kind)
    rows, size = min(len(x), max(1, _NUMBERS // len(weight))), len(weight)
    memory = narrow.new_empty(rows, -(-size // _ALIGNMENT) * _ALIGNMENT)[:, :size]
    sums = torch.empty(3, len(x), dtype=torch.float32, device=x.device)
    of_x, of_weight = torch.empty_like(x), None
    if weight.requires_grad:
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
    for start in range(0, len(x), rows):
        block = slice(start, min(start + rows, len(x)))
        part = narrow[block]
        logits = torch.mm(part, output.T, out=memory[: len(part)])
        to_gradients(logits, targets[block], sums[:, block], smoothing)
        of_x[block] = logits @ output
        if of_weight is not None:
            of_weight += logits.T @ part
    return torch.cat((sums.sum(dim=1), sums.new_zeros(1))), [of_x, of_weight]


def to_gradients(logits: Tensor, targets: Tensor, sums: Tensor, smoothing: float) -> None:
    """Overwrite logits (N, V) by the gradients of each row's smoothed loss.

    Args:
        logits: (N, V); rows may be further apart than V.
        targets: (N,) ids.
        sums: (3, N) float32; receives nll, spread (the mean over the vocabulary of -log P), both in
            nats, and 1 where the target has the largest logit, else 0.
        smoothing: as in `smoothed_cross_entropy`.
    """
    from seqattn.ops.gpu.triton_loss import BLOCK, logits_to_gradients

    size, grid = logits.shape[1], (len(logits),)
    strides = logits.stride(0), sums.stride(0)
    logits_to_gradients[grid](
        logits, targets, sums, size, *strides, smoothing, smoothing / size, BLOCK=BLOCK, num_warps=8
    )
