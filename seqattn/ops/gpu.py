"""How PyTorch's own parts are set up for a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def multiplies_bf16() -> bool:
    """Return True if there is a GPU that multiplies bfloat16 by instructions of its own."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def set_up(tf32: bool, cudnn_attention: bool) -> None:
    """Chooses what float32 is multiplied in, and whether attention may be cuDNN's."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cuda.enable_cudnn_sdp(cudnn_attention)


def multiply_all(tensors: list[Tensor], factor: Tensor | float) -> None:
    """Multiply tensors in place by one number, in few launches where this PyTorch can."""
    if tensors and hasattr(torch, "_foreach_mul_"):
        torch._foreach_mul_(tensors, factor)
        return
    for tensor in tensors:
        tensor.mul_(factor)


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """A block in which attention is not cuDNN's, which plans each new shape for some 60 ms.

    PyTorch prefers it on Hopper from 2.11 on; nearly every batch of texts and every decoding step
    has a new shape.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def groups_are_fused(q: Tensor, bias: Tensor | None) -> bool:
    """Return True if PyTorch's fused attention reads key heads that several query heads share.

    On a GPU only flash attention does, which knows half precision and no mask; what it cannot
    do would write all weights out. Args: q: the queries; bias: the mask, or None.
    """
    return q.device.type == "cpu" or (bias is None and q.dtype in HALVES)


def for_all_heads(x: Tensor, heads: int) -> Tensor:
    """Keys or values (B, G, S, Dh) repeated for each of the query heads: (B, H, S, Dh)."""
    return x[:, :, None].expand(-1, -1, heads // x.shape[1], -1, -1).flatten(1, 2)


def running_sums(x: Tensor) -> Tensor:
    """`x.cumsum(dim=-1)`; by the CPU where a GPU may add in one order alone, which it cannot."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return x.cpu().cumsum(dim=-1).to(x.device)
    return x.cumsum(dim=-1)
