"""The quick exponential and hyperbolic tangent against PyTorch's own."""

import pytest
import torch

from seqattn.ops import exp_, tanh_


@pytest.mark.usefixtures("where_mkl_lags")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_exponentials_are_those_of_exp_and_made_in_place(dtype):
    x = torch.cat((torch.linspace(-87, 0, 5_000), torch.tensor([-0.0, -200.0, -torch.inf]))).to(
        dtype
    )
    wanted, taken = x.exp(), x.clone()
    assert exp_(taken) is taken
    assert taken[-1] == 0
    torch.testing.assert_close(taken, wanted, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_value_and_gradient_are_those_of_tanh(dtype):
    x = torch.cat((torch.randn(50) * 3, torch.tensor([0.0, 1e-6, -40.0, 40.0]))).to(dtype)
    x.requires_grad_()
    got, expected = tanh_(x * 1), x.tanh()
    assert got.dtype == dtype
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
    pull = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(y, x, pull)[0] for y in (got, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_it_works_in_place_and_tanh_itself_is_not_called():
    x = torch.randn(5)
    expected = x.tanh()
    with torch.profiler.profile() as profiler:
        got = tanh_(x)
    assert got.data_ptr() == x.data_ptr()
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
    assert not [event for event in profiler.events() if event.name.startswith("aten::tanh")]
