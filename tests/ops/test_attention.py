"""Attention of few queries that share key heads, as in a decoding step, beside PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from tests.comparing import close


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "mask", [None, (2, 1, 1, 7), (2, 1, 3, 7), (2, 6, 3, 7), (1, 6, 1, 7), (3, 7)], ids=str
)
@pytest.mark.parametrize("kind", ["visible", "added"])
def test_it_is_pytorchs_attention(groups, rows, mask, kind):
    q = torch.randn(2, 6, rows, 8)
    keys, values = torch.randn(2, 2, groups, 7, 8).unbind()
    bias = None if mask is None else torch.randn(*mask)[..., :rows, :]
    if bias is not None and kind == "visible":
        bias = bias < 0.5
        bias[..., 0] = True
    want = F.scaled_dot_product_attention(
        q, keys, values, attn_mask=bias, scale=0.3, enable_gqa=True
    )
    with torch.no_grad():
        close(ops.attention(q, keys, values, bias, False, 0.0, 0.3), want)
