"""Attention by the version that serves, beside PyTorch's."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from seqattn.ops.cpu import onednn
from tests.tolerance import close


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "mask",
    [None, (2, 1, 1, 7), (2, 1, 3, 7), (1, 1, 3, 7), (2, 6, 3, 7), (1, 6, 1, 7), (3, 7)],
    ids=str,
)
@pytest.mark.parametrize("kind", ["visible", "added"])
def test_few_queries_that_share_key_heads_are_pytorchs(groups, rows, mask, kind):
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
        # as on a GPU
        close(ops._by_groups(q, keys, values, bias, 0.3, ops._written_out), want)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_few_queries_of_a_whole_target_see_nothing_that_follows_them(groups):
    q = torch.randn(2, 6, 5, 8)
    keys, values = torch.randn(2, 2, groups, 5, 8).unbind()
    want = F.scaled_dot_product_attention(
        q, keys, values, is_causal=True, scale=0.3, enable_gqa=True
    )
    with torch.no_grad():
        close(ops.attention(q, keys, values, None, True, 0.0, 0.3), want)


def test_products_that_are_exact_stay_so_under_autocast():
    x, y = torch.randn(2, 9, 16), torch.randn(2, 16, 7)
    with torch.autocast("cpu", torch.bfloat16):
        found = ops.exact_product(x, y)
        from_half = ops.exact_product(x.bfloat16(), y.bfloat16())
    close(found, x @ y)
    close(from_half, x.bfloat16().float() @ y.bfloat16().float())


@pytest.mark.parametrize("keys", [20, 100, 300])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_in_bfloat16_it_is_as_near_to_the_exact_output_as_pytorchs(
    monkeypatch, keys, native, autocast
):
    monkeypatch.setattr(onednn, "bf16_is_native", lambda: native)
    inputs = [2 * torch.randn(2, 4, keys, 32, dtype=torch.bfloat16) for _ in range(3)]
    change = torch.randn(2, 4, keys, 32, dtype=torch.bfloat16)

    def results(call, kind=torch.bfloat16):
        given = [part.to(kind).requires_grad_() for part in inputs]
        out = call(*given)
        return [x.double() for x in (out, *torch.autograd.grad(out, given, change.to(kind)))]

    def ours(*given):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return ops.attention(*given, None, True, 0.0, 0.2)

    theirs = partial(F.scaled_dot_product_attention, is_causal=True, scale=0.2)
    exact = results(theirs, torch.float64)
    for own, other, right in zip(results(ours), results(theirs), exact):
        assert (own - right).norm() < 1.2 * (other - right).norm()
