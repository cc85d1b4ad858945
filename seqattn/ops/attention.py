"""Softmax attention without its weights, by whichever implementation is quickest here."""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.ops.flash_attention import flash_attention, tiles_are_quicker
from seqattn.ops.gpu import for_all_heads, groups_are_fused
from seqattn.ops.products import FEW_ROWS
from seqattn.ops.short_attention import longest, short_attention


def fused_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    is_causal: bool,
    dropout: float,
    scale: float,
) -> Tensor:
    """Return softmax(q keys^T scale + bias) values: (B, H, T, Dh).

    On a CPU without products in bfloat16 it runs in float32, several times as fast.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, G, S, Dh).
        bias: added to the scores, or bool with True where a query may look; None for nothing.
        is_causal: whether query i sees keys 0 to i alone.
        dropout: share of weights dropped.
        scale: of the scores.
    """
    on_cpu = q.device.type == "cpu"
    step = on_cpu and not torch.is_grad_enabled() and q.shape[2] <= FEW_ROWS  # of a search
    eager = on_cpu and not step and not torch.compiler.is_compiling()
    plain = bias is None or bias.dtype == torch.bool
    if eager and plain and keys.shape[2] <= longest(q.dtype, dropout):
        return short_attention(q, keys, values, bias, is_causal, scale, dropout)
    if eager and not dropout and tiles_are_quicker(q.dtype, keys.shape[2]):
        return flash_attention(q, keys, values, bias, is_causal, scale)
    if on_cpu and q.dtype == torch.bfloat16:
        bias = bias if bias is None or bias.dtype == torch.bool else bias.float()
        with torch.autocast("cpu", enabled=False):
            wide = (q.float(), keys.float(), values.float(), bias)
            return fused_attention(*wide, is_causal, dropout, scale).to(q.dtype)
    if step and keys.shape[1] != q.shape[1] and not (is_causal or dropout):
        return _by_groups(q, keys, values, bias, scale)
    if on_cpu and keys.shape[1] == 1:  # its grouped backward pass is slower
        keys, values = (part.expand(-1, q.shape[1], -1, -1) for part in (keys, values))
    if q.shape[1] != keys.shape[1] and not groups_are_fused(q, bias):
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
    q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float
) -> Tensor:
    """`attention` of few queries, where those that share a key head become rows of one head."""
    heads, rows = q.shape[1:3]
    q = q.unflatten(1, (keys.shape[1], -1)).flatten(2, 3)  # (B, H, T, Dh) -> (B, G, H/G*T, Dh)
    if bias is not None:
        bias = bias.expand(*bias.shape[:-3], heads, rows, -1)
        bias = bias.unflatten(-3, (keys.shape[1], -1)).flatten(-3, -2)
    context = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias, scale=scale)
    return context.unflatten(2, (-1, rows)).flatten(1, 2)
