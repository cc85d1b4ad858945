"""RetNet against its parallel form, written with complex numbers and one matrix of decays."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.errors import UserError
from seqattn.extras.mixers.retnet import RetNet
from seqattn.positions import Position, Stack
from tests.builders import DIM, HEADS, causal_mask, full_mask, randomised

B, T, WIDTH = 2, 11, DIM // HEADS


def rotated(x):
    """e^(i n theta) on pairs of channels: (B, T, H, Dh) -> complex (B, T, H, Dh/2)."""
    theta = 10000.0 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    turns = torch.polar(torch.ones(T, WIDTH // 2).double(), torch.arange(T)[:, None] * theta)
    return torch.complex(*x.chunk(2, dim=3)) * turns[:, None]


def retained(block, x):
    """Equation 5 of the paper for each head: (B, T, H, Dv)."""
    mixed = block.inner(x).split(block.widths, dim=2)[:3]
    queries, keys, values = (part.unflatten(2, (HEADS, -1)) for part in mixed)
    scores = torch.einsum("bnhd,bmhd->bhnm", rotated(queries), rotated(keys).conj()).real
    distance = torch.arange(T)[:, None] - torch.arange(T)
    rates = 1 - 2.0 ** (-5 - torch.tensor([0, 2, 1, 3]).double())
    decays = torch.where(distance >= 0, rates[:, None, None] ** distance, 0.0)
    return torch.einsum("bhnm,bmhd->bnhd", scores * WIDTH**-0.5 * decays, values)


def by_matrix(block, x, mask):
    """Equation 8; in an encoder the last two heads read the reversed text."""
    y = retained(block, x)
    if mask is full_mask:
        y = torch.cat((y[:, :, :2], retained(block, x.flip(1)).flip(1)[:, :, 2:]), dim=2)
    y = y * (y.square().mean(dim=3, keepdim=True) + 1e-6).rsqrt()
    return block.output(y.flatten(2) * F.silu(block.inner(x)[..., -block.widths[3] :]))


@pytest.mark.parametrize("mask", [causal_mask, full_mask])
@pytest.mark.parametrize("chunk", [4, 64])
def test_it_equals_the_parallel_form_in_value_and_gradient(mask, chunk):
    torch.manual_seed(0)
    block = randomised(RetNet(DIM, DIM, HEADS, chunk=chunk)).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64, requires_grad=True)
    real = torch.ones(B, T, dtype=torch.bool)
    outputs = block.mix(x, mask(real), Position(Stack(DIM, HEADS))), by_matrix(block, x, mask)
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)
    leaves = (x, *block.parameters())
    both = (torch.autograd.grad((out * out.detach().cos()).sum(), leaves) for out in outputs)
    torch.testing.assert_close(*both, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("heads", [3, 8])
def test_odd_heads_and_those_of_an_odd_width_are_refused(heads):
    with pytest.raises(UserError, match=r"^num_heads must be even and divide model.dim / 2 \(12\)"):
        RetNet(DIM, DIM, heads)
