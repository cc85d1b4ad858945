"""Attention over short sequences, beside PyTorch's."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.attention.masks import Mask
from seqattn.ops.cpu import onednn
from seqattn.ops.cpu import short_attention as module
from seqattn.ops.cpu.short_attention import short_attention
from seqattn.positions import Position
from tests.builders import make_position
from tests.tolerance import close


def heads(count, length, dtype):
    return torch.randn(2, length, count, 8, dtype=dtype).transpose(1, 2).requires_grad_()


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
@pytest.mark.parametrize("length", [5, 16])
def test_it_is_pytorchs_attention_with_its_gradients(groups, mask, length):
    q, keys, values = (heads(count, length, torch.float64) for count in (4, groups, groups))
    visible = torch.ones(2, 1, 1, length, dtype=torch.bool)
    visible[0, ..., 3:] = False
    visible = visible if mask == "padding" else None
    want = F.scaled_dot_product_attention(
        q, keys, values, visible, is_causal=mask == "causal", scale=0.3, enable_gqa=True
    )
    got = short_attention(q, keys, values, visible, mask == "causal", 0.3)
    close(got, want)  # its softmax is in float32
    gradient = torch.randn_like(want)
    expected = torch.autograd.grad(want, (q, keys, values), gradient)
    found = torch.autograd.grad(got, (q, keys, values), gradient)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("length", [5, 40])
def test_dropout_takes_weights_and_scales_the_others(groups, length, monkeypatch):
    kept = (torch.rand(2, 4, length, length) < 0.7).to(torch.int16)
    monkeypatch.setattr(module, "random_mask", lambda shape, p: kept)
    q, keys, values = (heads(count, length, torch.float64) for count in (4, groups, groups))
    got = short_attention(q, keys, values, None, True, 0.3, dropout=0.25)
    k, v = (part.repeat_interleave(4 // groups, dim=1) for part in (keys, values))
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = (q @ k.mT * 0.3).masked_fill(hidden, -torch.inf).softmax(dim=-1)
    want = (weights * kept / 0.75) @ v
    close(got, want)
    gradient = torch.randn_like(want)
    expected = torch.autograd.grad(want, (q, keys, values), gradient)
    found = torch.autograd.grad(got, (q, keys, values), gradient)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("keys", [9, 300])
def test_the_kernel_drops_the_share_that_it_is_told(keys):
    q, k = torch.zeros(1, 1, 2000, 4), torch.zeros(1, 1, keys, 4)
    values = torch.ones(1, 1, keys, 4)
    out = ops.attention(q, k, values, None, False, 0.4, 1.0)[..., 0]
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    assert out.var().item() == pytest.approx(0.4 / 0.6 / keys, rel=0.15)


@pytest.mark.parametrize("length", [5, 256, 257])
def test_half_precision_on_a_cpu_is_near_full_precision(length):
    narrow = [heads(4, length, torch.bfloat16) for _ in range(3)]
    got = ops.attention(*narrow, None, True, 0.0, 0.3)
    wide = (part.float() for part in narrow)
    want = F.scaled_dot_product_attention(*wide, is_causal=True, scale=0.3)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)


def of_exact(out, exact):
    """The error of some numbers, over the size of the exact ones."""
    return [((x.double() - y).norm() / y.norm()).item() for x, y in zip(out, exact, strict=True)]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("way", ["training", "written out"])
@pytest.mark.parametrize("length", [5, 32, 200])
@pytest.mark.parametrize("size", [1, 3])
def test_half_precision_on_a_cpu_is_as_near_as_pytorchs(native, way, length, size, monkeypatch):
    monkeypatch.setattr(onednn, "bf16_is_native", lambda: native)
    parts = [torch.randn(2, 4, length, 32) * factor for factor in (size, size, 1)]
    parts, upstream = [x.bfloat16() for x in parts], torch.randn(2, 4, length, 32).bfloat16()

    def attended(attend, kind):
        leaves = [x.to(kind).requires_grad_() for x in parts]
        out = attend(*leaves)
        return [out, *torch.autograd.grad(out, leaves, upstream.to(kind))]

    kernel, places = SoftmaxKernel(HeadShape(4, 4, 32)), torch.arange(length)
    plain = partial(WeightedKernel._context, kernel)
    attend = plain if way == "written out" else kernel._context
    mask, position = Mask(places, places, causal=True), make_position(Position)
    exact = attended(partial(F.scaled_dot_product_attention, is_causal=True), torch.float64)
    theirs = attended(partial(F.scaled_dot_product_attention, is_causal=True), torch.bfloat16)
    ours = attended(lambda *x: attend(*x, mask, position), torch.bfloat16)
    for mine, their in zip(of_exact(ours, exact), of_exact(theirs, exact), strict=True):
        assert mine < 1.2 * their
