"""Projection to the vocabulary and smoothed cross-entropy on a GPU, by one kernel over the logits.

The products write each logit once and read its gradient twice; between them the kernel reads a row
of logits from memory once and overwrites it with its gradient: 4 bytes a logit in half precision,
where separate operations in float32 move 36. Lines of a row that are read again are in the cache.
"""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_NUMBERS = 1 << 29
"""Logits of a block: 1 GiB in half precision. Each block adds a pass over the weight's gradient."""
_ALIGNMENT = 8  # logits between rows are a multiple of it, as products of odd widths are slower


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def serves(x: Tensor) -> bool:
    """Return True on a GPU with Triton, outside compiled code, except in float64."""
    fits = x.is_cuda and x.dtype != torch.float64
    return fits and _has_triton() and not torch.compiler.is_compiling()


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
