"""Softmax over few numbers a row, beside PyTorch's."""

import pytest
import torch

from seqattn.ops.short_softmax import softmax, softmax_backward


@pytest.mark.parametrize("length", [1, 7, 15, 16, 40])
def test_it_is_pytorchs_with_its_gradient(length):
    scores = 50 * torch.randn(3, 4, length, dtype=torch.float64)
    scores[0, 0, : length - 1] = -torch.inf
    scores.requires_grad_()
    want = scores.softmax(dim=-1)
    got = softmax(scores)
    torch.testing.assert_close(got, want)
    gradient = torch.randn_like(want)
    (expected,) = torch.autograd.grad(want, scores, gradient)
    torch.testing.assert_close(torch.autograd.grad(got, scores, gradient)[0], expected)
    torch.testing.assert_close(softmax_backward(gradient, got.detach()), expected)


def test_it_has_second_derivatives():
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(softmax, scores)
