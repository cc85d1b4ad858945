"""GPU settings of PyTorch, and operations that differ on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def multiplies_bf16() -> bool:
    """Return True if there is a GPU with native bfloat16 multiplication."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def set_up(tf32: bool, cudnn_attention: bool) -> None:
    """Set the precision of float32 products, and enable or disable cuDNN attention."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cuda.enable_cudnn_sdp(cudnn_attention)


def multiply_all(tensors: list[Tensor], factor: Tensor | float) -> None:
    """Multiply tensors in place by one number, in few launches where PyTorch supports it."""
    if tensors and hasattr(torch, "_foreach_mul_"):
        torch._foreach_mul_(tensors, factor)
        return
    for tensor in tensors:
        tensor.mul_(factor)


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Disable cuDNN attention within the block, as it spends about 60 ms planning each new shape.

    Since 2.11, PyTorch prefers it on Hopper; nearly every batch of texts and every decoding step
    has a new shape.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def groups_are_fused(q: Tensor, bias: Tensor | None) -> bool:
    """Return True if PyTorch's fused attention can read key heads shared by several query heads.

    On a GPU only flash attention does, which needs half precision and no mask; otherwise PyTorch
    would materialize all weights. Args: q: the queries; bias: the mask, or None.
    """
    return q.device.type == "cpu" or (bias is None and q.dtype in HALVES)


def for_all_heads(x: Tensor, heads: int) -> Tensor:
    """Return keys or values (B, G, S, Dh) repeated for each query head: (B, H, S, Dh)."""
    return x[:, :, None].expand(-1, -1, heads // x.shape[1], -1, -1).flatten(1, 2)


def running_sums(x: Tensor) -> Tensor:
    """Return `x.cumsum(dim=-1)`, on the CPU if deterministic algorithms are required of a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return x.cpu().cumsum(dim=-1).to(x.device)
    return x.cumsum(dim=-1)
