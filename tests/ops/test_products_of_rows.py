"""Products of few rows with small matrices, beside PyTorch's."""

import pytest
import torch

from seqattn.ops.products import product


@pytest.mark.parametrize("keys", [1, 12, 13, 40])
@pytest.mark.parametrize("rows", [1, 3])
def test_it_is_the_product_with_its_gradients(rows, keys):
    x = torch.randn(2, 4, rows, 32, dtype=torch.float64, requires_grad=True)
    table = torch.randn(2, 4, keys, 32, dtype=torch.float64, requires_grad=True)
    want, got = x @ table.mT, product(x, table.mT)
    torch.testing.assert_close(got, want)
    gradient = torch.randn_like(want)
    expected = torch.autograd.grad(want, (x, table), gradient)
    for mine, theirs in zip(torch.autograd.grad(got, (x, table), gradient), expected):
        torch.testing.assert_close(mine, theirs)


def test_half_precision_is_summed_in_more():
    x, table = torch.full((1, 1, 300), 0.1), torch.ones(1, 300, 1)
    halves = x.bfloat16(), table.bfloat16()
    assert torch.equal(product(*halves), halves[0] @ halves[1])
