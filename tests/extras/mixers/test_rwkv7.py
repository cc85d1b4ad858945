"""RWKV-7 against its equations, written for one head and one token at a time."""

import math

import pytest
import torch

from seqattn.errors import UserError
from seqattn.extras.mixers.rwkv7 import RWKV7, Steps, chunked, loop
from seqattn.positions import Position, Stack
from tests.builders import DIM, HEADS, causal_mask, full_mask, randomised
from tests.tolerance import close

B, T, WIDTH = 2, 9, DIM // HEADS


def token_before(x, backward):
    """The token before each of x (T, D); the one after it in the channels `backward`."""
    zero = torch.zeros_like(x[:1])
    earlier, later = torch.cat((zero, x[:-1])), torch.cat((x[1:], zero))
    return torch.where(backward, later, earlier)


def by_equations(block, x, both_ways):
    """Section 4 of the paper for one text x (T, D)."""
    backward = (torch.arange(DIM) >= DIM // 2) & both_ways
    before = token_before(x, backward)
    mixed = [torch.lerp(x, before, mixture) for mixture in block.mixture]
    r, k, v = (mixed[n] @ block.projections[n].weight.T for n in range(3))
    inner = [mixed[3 + n] @ block.downs[n].weight.T for n in range(3)]
    d, a, g = (
        one(part) @ up.weight.T
        for one, part, up in zip((torch.tanh, lambda x: x, torch.sigmoid), inner, block.ups)
    )
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(d + block.decay))
    a = torch.sigmoid(a + block.rate)
    replacement = k * torch.lerp(torch.ones_like(a), a, block.replacement)
    outputs = torch.zeros_like(x)
    for head in range(HEADS):
        part = slice(head * WIDTH, (head + 1) * WIDTH)
        state, order = x.new_zeros(WIDTH, WIDTH), range(T)
        for t in reversed(order) if both_ways and head >= HEADS // 2 else order:
            removal = (k * block.removal)[t, part]
            removal = removal / removal.norm()
            state = state @ (torch.diag(w[t, part]) - torch.outer(removal, a[t, part] * removal))
            state = state + torch.outer(v[t, part], replacement[t, part])
            y = state @ r[t, part]
            y = (y - y.mean()) / (y.var(correction=0) + 1e-5 * WIDTH).sqrt()
            bonus = (r * block.bonus * replacement)[t, part].sum() * v[t, part]
            outputs[t, part] = y * block.norm_weight[part] + block.norm_bias[part] + bonus
    return (g * outputs) @ block.output.weight.T


@pytest.mark.parametrize("mask", [causal_mask, full_mask])
def test_it_equals_the_equations(mask):
    torch.manual_seed(0)
    block = randomised(RWKV7(DIM, DIM, HEADS, rank=5, chunk=4)).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    got = block.mix(x, mask(torch.ones(B, T, dtype=torch.bool)), Position(Stack(DIM, HEADS)))
    expected = torch.stack([by_equations(block, text, mask is full_mask) for text in x])
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("decay", [0.0, -math.exp(-0.5)])
def test_float32_is_as_precise_for_the_slowest_and_the_fastest_decay_over_the_longest_chunk(decay):
    shape = (1, 2, 150, 4)
    parts = [torch.randn(shape, dtype=torch.float64) for _ in range(5)]
    q, k, v, removed, rates = parts
    removed, rates = torch.nn.functional.normalize(removed, dim=3), rates.sigmoid()
    steps = Steps(q, torch.full(shape, decay).double(), k, v, removed, rates)
    state = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    single = Steps(*(part.float() for part in steps))
    for got, expected in zip(chunked(single, state.float(), 128), loop(steps, state)):
        close(got.double(), expected)


def test_odd_heads_and_long_chunks_are_refused():
    with pytest.raises(UserError, match=r"^num_heads must be even and divide model.dim \(24\)"):
        RWKV7(24, 24, 3)
    with pytest.raises(UserError, match=r"^chunk must be at most 128, got 129"):
        RWKV7(24, 24, 4, chunk=129)
