"""GPU settings of PyTorch, and operations that differ on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)
_LONG_ROWS = 512
"""Number of keys from which `rowwise_attention` is faster than attention with a mask."""


def multiplies_bf16() -> bool:
    """Return True if there is a GPU with native bfloat16 multiplication."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def set_up(tf32: bool, cudnn_attention: bool) -> None:
    """Set the precision of float32 products, and enable or disable cuDNN attention."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cuda.enable_cudnn_sdp(cudnn_attention)


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Disable cuDNN attention within the block, as it spends about 60 ms planning each new shape.

    Since 2.11, PyTorch prefers it on Hopper; nearly every batch of texts and every decoding step
    has a new shape.
    """
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)


def groups_are_fused(q: Tensor, bias: Tensor | None) -> bool:
    """Return True if PyTorch's fused attention can read key heads shared by several query heads.

    On a GPU only flash attention does, which needs half precision and no mask; otherwise PyTorch
    would materialize all weights. Args: q: the queries; bias: the mask, or None.
    """
    return q.device.type == "cpu" or (bias is None and q.dtype in HALVES)


def row_bounds(real: Tensor) -> Tensor | None:
    """Return the bounds of each row's tokens and of its padding, for `rowwise_attention`.

    Args:
        real: (B, S) bool, True on tokens, which come before the padding.

    Returns:
        (2B+1,) int32, in rows laid end to end; None if this device or length has no use for them.
    """
    if not real.is_cuda or real.shape[1] < _LONG_ROWS:
        return None
    rows, length = real.shape
    bounds = torch.arange(2 * rows + 1, dtype=torch.int32, device=real.device) // 2 * length
    bounds[1::2] += real.sum(dim=1, dtype=torch.int32)  # 0, 0, S, S, 2S, ... before
    return bounds


def reads_rows(q: Tensor, dropout: float) -> bool:
    """Return True if `rowwise_attention` supports queries (B, H, T, Dh)."""
    fits = q.dtype in HALVES and q.shape[3] % 8 == 0 and q.shape[3] <= 256
    return fits and not dropout and not torch.are_deterministic_algorithms_enabled()


def rowwise_attention(
    q: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, scale: float
) -> Tensor:
    """Return softmax(q keys^T scale) values, (B, H, T, Dh), by flash attention without a mask.

    Each row counts as two sequences: all queries with the keys that are tokens, and no queries with
    the keys that are padding.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, G, S, Dh).
        bounds: from `row_bounds`.
        scale: factor on the scores.
    """
    from torch.nn.attention.varlen import varlen_attn  # takes a second, and only a GPU needs it

    rows, heads, queries, width = q.shape
    if keys.shape[1] != heads:
        keys, values = (for_all_heads(part, heads) for part in (keys, values))
    if scale != width**-0.5:
        q = q * (scale * width**0.5)
    numbers = torch.arange(1, 2 * rows + 2, dtype=torch.int32, device=q.device)
    starts, longest = numbers // 2 * queries, keys.shape[2]  # 0, T, T, 2T, 2T, ...
    q, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (q, keys, values))
    context = varlen_attn(q, keys, values, starts, bounds, queries, longest)
    assert isinstance(context, Tensor)
    return context.unflatten(0, (rows, queries)).transpose(1, 2)


def for_all_heads(x: Tensor, heads: int) -> Tensor:
    """Return keys or values (B, G, S, Dh) repeated for each query head: (B, H, S, Dh)."""
    return x[:, :, None].expand(-1, -1, heads // x.shape[1], -1, -1).flatten(1, 2)


def running_sums(x: Tensor) -> Tensor:
    """Return `x.cumsum(dim=-1)`, on the CPU if deterministic algorithms are required of a GPU."""
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        return x.cpu().cumsum(dim=-1).to(x.device)
    return x.cumsum(dim=-1)
