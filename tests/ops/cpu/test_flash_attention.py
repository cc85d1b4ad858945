"""Attention in tiles beside PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from seqattn.ops.cpu import flash_attention as module
from seqattn.ops.cpu.flash_attention import flash_attention
from tests.operations import Largest
from tests.tolerance import close

B, H, T = 3, 4, 23
SIZES = {  # rows and keys of a tile, and scores at once
    "one tile": (512, 1024, 1 << 19),
    "all heads of two sentences": (T, T, 2 * H * T * T),
    "some heads": (8, T, 3 * 8 * T),
    "keys, too": (8, 6, 1),
    "two rows each": (2, 5, 1),
}


def blocked():
    visible = torch.rand(B, H, T, T) < 0.3
    visible[..., -1] = True
    return visible


MASKS = {
    "none": None,
    "causal": None,
    "padding on the right": torch.arange(T) < torch.tensor([T, 9, 1])[:, None, None, None],
    "padding on the left": torch.arange(T) >= torch.tensor([0, 9, T - 1])[:, None, None, None],
    "a pattern": (torch.arange(T)[:, None] - torch.arange(T)).abs()[None, None] < 3,
    "every head its own": blocked(),
    "a pattern for each head": blocked()[0],
}


def heads(count, dtype=torch.float32, length=T):
    return torch.randn(B, length, count, 8, dtype=dtype).transpose(1, 2).requires_grad_()


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_is_pytorchs_attention_with_its_gradients(monkeypatch, size, mask, groups):
    for name, value in zip(("_ROWS", "_KEYS", "_SCORES"), size):
        monkeypatch.setattr(module, name, value)
    q, keys, values = (heads(count) for count in (H, groups, groups))
    causal, visible = mask == "causal", MASKS[mask]
    exact = (part.double() for part in (q, keys, values))
    want = F.scaled_dot_product_attention(
        *exact, visible, is_causal=causal, scale=0.7, enable_gqa=True
    ).float()
    got = flash_attention(q, keys, values, visible, causal, 0.7)
    close(got, want)
    gradient = torch.randn_like(want)
    expected = torch.autograd.grad(want, (q, keys, values), gradient)
    found = torch.autograd.grad(got, (q, keys, values), gradient)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs, bound=2e-5)


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize(
    "shape", [(1, H, T, T), (B, 1, 1, T), (B, H, T, T), (H, 1, T), (T, T)], ids=str
)
def test_what_is_added_to_scores_has_its_gradient(monkeypatch, size, shape):
    for name, value in zip(("_ROWS", "_KEYS", "_SCORES"), size):
        monkeypatch.setattr(module, name, value)
    parts = [heads(H), heads(2), heads(2), torch.randn(shape, requires_grad=True)]
    hidden = torch.arange(T) == 3
    want, got = (
        call(*parts[:3], parts[3].masked_fill(hidden, -torch.inf))
        for call in (
            lambda *x: F.scaled_dot_product_attention(
                *(part.double() for part in x), scale=0.7, enable_gqa=True
            ).float(),
            lambda *x: flash_attention(*x, False, 0.7),
        )
    )
    close(got, want)
    gradient = torch.randn_like(want)
    expected, found = (torch.autograd.grad(x, parts, gradient) for x in (want, got))
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs, bound=2e-5)


@pytest.mark.parametrize("lengths", [(300, 300), (700, 1500)], ids=str)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_long_sequences_are_attended_to_in_tiles_where_that_is_quicker(monkeypatch, kind, lengths):
    calls = []
    monkeypatch.setattr(ops, "tiles_are_quicker", lambda kind, keys: kind == torch.float32)
    monkeypatch.setattr(ops, "flash_attention", lambda *x: calls.append(x) or made(*x))
    made = flash_attention
    q, keys = (heads(H, kind, length) for length in lengths)
    got = ops.attention(q, keys, keys, None, lengths[0] == lengths[1], 0.0, 0.3)
    wide = (part.double() for part in (q, keys, keys))
    causal = lengths[0] == lengths[1]
    want = F.scaled_dot_product_attention(*wide, is_causal=causal, scale=0.3).float()
    assert calls
    assert got.dtype == kind
    near = 1e-5 if kind == torch.float32 else 2e-2
    close(got.float(), want, bound=near)


def test_no_tensor_of_queries_by_keys_is_made():
    length = 2100
    parts = [heads(2, length=length)[:1] for _ in range(3)]
    with Largest() as largest:
        flash_attention(*parts, None, False, 0.3).sum().backward()
    assert largest.numbers <= 512 * 1024
