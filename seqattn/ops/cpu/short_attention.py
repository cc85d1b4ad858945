"""Softmax attention over short sequences on a CPU."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from seqattn.ops import second_derivatives
from seqattn.ops.cpu.elementwise import factor, random_mask
from seqattn.ops.cpu.onednn import quick_products
from seqattn.ops.gpu import for_all_heads
from seqattn.ops.precision import wide


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        hidden: Tensor | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        with quick_products():
            scores = (wide(q) @ wide(keys).transpose(2, 3)).mul_(scale)
        if hidden is not None:
            scores.masked_fill_(hidden, -torch.inf)
        weights = scores.softmax(dim=-1)
        dropout_mask = random_mask(weights.shape, dropout) if dropout else None
        ctx.save_for_backward(q, keys, values, weights, dropout_mask, hidden)
        ctx.scale, ctx.factor = scale, factor(dropout)
        with quick_products():
            context = _dropped(weights, dropout_mask) @ wide(values)
        return (context if dropout_mask is None else context.mul_(ctx.factor)).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, keys, values, weights, dropout_mask, hidden = ctx.saved_tensors
        if second_derivatives.creates_graph():
            bias = None if hidden is None else torch.where(hidden, -torch.inf, 0.0)
            options = {"bias": bias, "scale": ctx.scale, "factor": ctx.factor}
            plain = partial(plain_attention, dropout_mask=dropout_mask, **options)
            gradients = second_derivatives.gradients(plain, (q, keys, values), gradient)
            return *gradients, None, None, None
        gradient = gradient.contiguous() if dropout_mask is None else gradient * ctx.factor
        with quick_products():
            lost = wide(gradient) @ wide(values).transpose(2, 3)
            lost = lost if dropout_mask is None else lost.mul_(dropout_mask)
            scores = torch._softmax_backward_data(wide(lost), weights, -1, weights.dtype)
            scores = scores.mul_(ctx.scale).to(q.dtype)
            of_values = _dropped(weights, dropout_mask).to(q.dtype).transpose(2, 3) @ gradient
            return scores @ keys, scores.transpose(2, 3) @ q, of_values, None, None, None


def plain_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None,
    scale: float,
    dropout_mask: Tensor | None = None,
    factor: float = 1.0,
) -> Tensor:
    """Return softmax(q keys^T scale + bias) values by PyTorch's own operations.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, H, S, Dh).
        bias: broadcastable to (B, H, T, S), -inf on hidden keys; None for no bias.
        scale: factor on the scores.
        dropout_mask: (B, H, T, S) 1, or 0 where a weight is dropped; None for no dropout.
        factor: factor on the remaining weights.
    """
    scores = wide(q) @ wide(keys).mT * scale
    weights = (scores if bias is None else scores + bias).softmax(dim=-1)
    return (_dropped(weights, dropout_mask) * factor @ wide(values)).to(q.dtype)


def _dropped(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights * mask


def short_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """Compute `scaled_dot_product_attention` for cases in which PyTorch's is slow on a CPU: few
    keys, bfloat16 backward passes, and dropout.

    Scores, weights and contexts are float32, as in PyTorch's; other products of the backward pass
    run in the type of q. Stores T * S weights per head.

    Args:
        q: (B, H, T, Dh).
        keys, values: (B, G, S, Dh), G dividing H.
        visible: bool, broadcastable to (B, H, T, S), at least one True in each row; None for all.
        is_causal: query t attends only to keys up to t; excludes `visible`.
        scale: factor on the scores.
        dropout: share of the weights dropped.
    """
    keys, values = (for_all_heads(part, q.shape[1]) for part in (keys, values))
    hidden = None if visible is None else ~visible
    if is_causal:
        hidden = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool).triu(1)
    # heads are strided, and each is read twice
    q, keys, values = (part.contiguous() for part in (q, keys, values))
    out: Tensor = _ShortAttention.apply(  # type: ignore[no-untyped-call]
        q, keys, values, hidden, scale, dropout
    )
    return out
