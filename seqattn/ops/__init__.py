"""Operations of kernels, layers and models, each dispatched to the fastest version for its inputs.

Only this folder depends on the machine. Each row of the table gives the condition of a function
here, or of the named file. The reference is PyTorch's operation unless the file has its own; tests
compare the fast version with it. Gains are speed-ups of a training step or search, or (o) of the
operation alone. A is an AMD CPU with AVX2; L one with AVX-512, where MKL lags by using only AVX2.

operation   quick version             serves, on a CPU                   A             L
----------  ------------------------  ---------------------------------- ------------  ------------
attention   cpu/short_attention       dropout, any number of keys        1.03 to 1.21  1.10 to 2.4
                                      31 keys; 256 in bf16 and on L      1.03 to 1.05  1.2 to 1.6 o
            cpu/flash_attention       L: 65 keys or more, as float32     off           1.2 to 1.84 o
            a group's heads as rows   8 queries or fewer, no gradients   1.1 to 1.5 o
                                      such queries with a mask in half   not measured
                                      precision on a GPU
            written out               such queries in float32 on a GPU   1.7 to 3.6 o on an H200
            gpu.rowwise_attention     512 padded keys or more in half    1.0 to 1.5 on an H200
                                      precision on a GPU
            backends                  the one that attention.kernel.backend names
product     cpu/onednn                L: float32, 9 rows or more         off           1.84 to 1.9
linear      cpu/onednn                L: float32, 2^20 multiplications   off           (both)
            layers.packed             searches, 2^20 numbers; on L 2^13  1.00 to 1.08  1.08 to 1.6
drop        cpu/elementwise           everywhere                         1.07 to 1.15
exp_        cpu/elementwise           L: float32                         off           4 o
tanh_       cpu/elementwise           float32 and float64                1.00 to 1.11
joined      one product for layers    training on a GPU                  1.3 on an H100
(loss)      vocabulary_loss           everywhere, on any device          1.14 to 1.38
            gpu/fused_loss            plain terms, training on a GPU     2.5 o on an H100
(beams)     topk                      everywhere, on any device          1.04 to 1.16  1.06
Int8Linear  int8                      CPUs that multiply int8, searches                see the docs
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.ops.backends import Backend, forced_attention
from seqattn.ops.cpu import elementwise, onednn
from seqattn.ops.cpu.flash_attention import flash_attention
from seqattn.ops.cpu.short_attention import short_attention
from seqattn.ops.gpu import (
    for_all_heads,
    groups_are_fused,
    reads_rows,
    rowwise_attention,
)
from seqattn.ops.precision import wide

LEAST = 1 << 20
"""Minimum multiplications for oneDNN to be faster in a linear layer, as each call costs 10 us."""


def at_hand(x: Tensor) -> bool:
    """Return True on a CPU outside compiled code, where reading values needs no synchronization."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def longest(kind: torch.dtype, dropout: float) -> float:
    """Return the number of keys up to which attention is fastest with materialized weights."""
    narrow = kind == torch.bfloat16 and onednn.bf16_is_native()
    if kind != torch.float32 and not narrow:
        return 0
    if dropout:
        return math.inf  # PyTorch's attention then stores the weights too
    return 256 if narrow or onednn.is_quicker() else 31


def tiles_are_quicker(kind: torch.dtype, keys: int) -> bool:
    """Return True if tiles are faster than PyTorch's attention, for this many keys of a type."""
    return keys > 64 and kind == torch.float32 and onednn.is_quicker()


def attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    dropout: float,
    scale: float,
    bounds: Tensor | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Return softmax(q keys^T scale + bias) values: (B, H, T, Dh).

    On a CPU scores and softmax are float32; beyond `longest` keys, bfloat16 inputs become float32.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, G, S, Dh), each of the G heads for H / G heads of the queries.
        bias: added to the scores, or bool, True = may attend; None for no bias.
        is_causal: query i attends only to keys 0 to i.
        dropout: share of weights dropped.
        scale: factor on the scores.
        bounds: where the tokens of each row of keys end (`ops.gpu.row_bounds`), if this expresses
            the same as `bias`; else None.
        backend: auto for the fastest version; flash, efficient or math for that one of PyTorch's.

    Raises:
        UserError: another backend than auto cannot compute it.
    """
    if bounds is not None and backend in ("auto", "flash") and reads_rows(q, dropout):
        return rowwise_attention(q, keys, values, bounds, scale)
    if backend != "auto":
        return forced_attention(backend, q, keys, values, bias, is_causal, dropout, scale)
    on_cpu, groups = q.device.type == "cpu", keys.shape[1]
    is_step = not torch.is_grad_enabled() and q.shape[2] <= onednn.FEW_ROWS
    if at_hand(q) and not is_step:
        plain = bias is None or bias.dtype == torch.bool
        if plain and keys.shape[2] <= longest(q.dtype, dropout):
            with torch.autocast("cpu", enabled=False):  # which would round the scores
                return short_attention(q, keys, values, bias, is_causal, scale, dropout)
        if not dropout and tiles_are_quicker(q.dtype, keys.shape[2]):
            return flash_attention(q, keys, values, bias, is_causal, scale)
    if on_cpu and q.dtype == torch.bfloat16:
        bias = bias if bias is None or bias.dtype == torch.bool else bias.float()
        with torch.autocast("cpu", enabled=False):
            single = (q.float(), keys.float(), values.float(), bias)
            return attention(*single, is_causal, dropout, scale).to(q.dtype)
    if is_step and not (is_causal or dropout):
        if not on_cpu and q.dtype == torch.float32:
            return _by_groups(q, keys, values, bias, scale, _written_out)
        if groups != q.shape[1] and (on_cpu or not groups_are_fused(q, bias)):
            return _by_groups(q, keys, values, bias, scale, F.scaled_dot_product_attention)
    if on_cpu and groups == 1:  # PyTorch's grouped backward pass is slower
        keys, values = (part.expand(-1, q.shape[1], -1, -1) for part in (keys, values))
    elif groups != q.shape[1] and not groups_are_fused(q, bias):
        keys, values = (for_all_heads(part, q.shape[1]) for part in (keys, values))
    return F.scaled_dot_product_attention(
        q,
        keys,
        values,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=q.shape[1] != keys.shape[1],
    )


def _by_groups(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    scale: float,
    attend: Callable[..., Tensor],
) -> Tensor:
    """Compute `attention` of few queries, with those that share a key head as rows of one head."""
    heads, rows = q.shape[1:3]
    q = q.unflatten(1, (keys.shape[1], -1)).flatten(2, 3)  # (B, H, T, Dh) -> (B, G, H/G*T, Dh)
    if bias is not None:
        bias = bias.expand(*bias.shape[:-3], heads, rows, -1)
        bias = bias.unflatten(-3, (keys.shape[1], -1)).flatten(-3, -2)
    context = attend(q, keys, values, attn_mask=bias, scale=scale)
    return context.unflatten(2, (-1, rows)).flatten(1, 2)


def _written_out(
    q: Tensor, keys: Tensor, values: Tensor, attn_mask: Tensor | None, scale: float
) -> Tensor:
    """Compute `F.scaled_dot_product_attention` by its definition."""
    scores = (q * scale) @ keys.mT
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(dim=-1) @ values


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return x (..., M, K) @ y (..., K, N), whose leading axes are equal.

    x may also be a single matrix without gradient.
    """
    few = torch.compiler.is_compiling() or x.shape[-2] <= onednn.FEW_ROWS  # a graph fits any length
    if not few and onednn.is_faster_for(x, y):
        return onednn.product(x, y)
    return x @ y


def float32_on_cpu(x: Tensor) -> Tensor:
    """Return x in at least float32 on a CPU, as a softmax should not read rounded scores."""
    return wide(x) if x.device.type == "cpu" else x


def exact_product(x: Tensor, y: Tensor) -> Tensor:
    """Return `product` of `exact` x and y."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return product(float32_on_cpu(x), float32_on_cpu(y))
    with torch.autocast("cpu", enabled=False):
        return product(wide(x), wide(y))


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, packed: Tensor | None = None
) -> Tensor:
    """Return x W^T + b.

    Args:
        x: (..., I).
        weight: (O, I).
        bias: (O,), or None.
        packed: the weight packed by `onednn.pack`, for products without gradients; or None.
    """
    large = not torch.compiler.is_compiling() and x.numel() * weight.shape[0] >= LEAST
    if not large or not onednn.can_multiply(x, weight):
        return F.linear(x, weight, bias)
    if packed is not None and not torch.is_grad_enabled():
        return onednn.packed_linear(x, packed, bias)
    return onednn.linear(x, weight, bias) if onednn.is_quicker() else F.linear(x, weight, bias)


def joins_products(x: Tensor) -> bool:
    """Return True if one product for several layers that read x is faster than one for each."""
    return x.device.type != "cpu" and torch.is_grad_enabled()


def add_linear(base: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return base (B, O) + x (B, I) W^T (O, I), in one launch unless oneDNN is used."""
    if onednn.is_faster_for(x, weight):
        return base + linear(x, weight)
    return torch.addmm(base, x, weight.T)


def drop(x: Tensor, p: float) -> Tensor:
    """Return x with a share `p` zeroed and the rest times 1/(1-p), as `F.dropout`."""
    if p == 0:
        return x
    return elementwise.drop(x, p) if at_hand(x) else F.dropout(x, p)


def exp_(x: Tensor) -> Tensor:
    """Return `x.exp_()`, without gradients; relative error |x| * 1e-7 in float32."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and onednn.mkl_lags():
        return elementwise.exp_(x)
    return x.exp_()


def tanh_(x: Tensor) -> Tensor:
    """Return `x.tanh_()`, with error 1e-7 in float32."""
    quick = at_hand(x) and x.dtype in (torch.float32, torch.float64)
    return elementwise.tanh_(x) if quick else x.tanh_()
