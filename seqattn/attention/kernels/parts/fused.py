"""PyTorch's fused attention, where it is fast."""

import torch
import torch.nn.functional as F
from torch import Tensor


def fused_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """softmax(q keys^T scale + bias) values by `scaled_dot_product_attention`.

    On a CPU it runs in float32 whatever it is given: its backward pass in bfloat16 takes several
    times as long there.

    Args:
        q: (B, H, T, Dh).
        keys: (B, G, S, Dh), G dividing H.
        values: (B, G, S, Dh).
        bias: bool (True = may look) or to be added to the scores, broadcastable to (B, H, T, S).
        is_causal: the triangle over equal lengths.
        dropout: share of weights dropped.
        scale: of the scores; None for 1/sqrt(Dh).

    Returns:
        (B, H, T, Dh) in the type of q.
    """

    def attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
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

    if q.device.type == "cpu" and keys.shape[1] == 1:  # its grouped backward pass is slower
        keys, values = (part.expand(-1, q.shape[1], -1, -1) for part in (keys, values))
    if q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return attend(q, keys, values, bias)
    if bias is not None and bias.dtype != torch.bool:
        bias = bias.float()
    with torch.autocast("cpu", enabled=False):
        return attend(q.float(), keys.float(), values.float(), bias).to(q.dtype)
