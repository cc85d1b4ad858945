"""Dropout against the definition of dropout."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops import drop
from seqattn.ops.cpu.short_attention import short_attention
from seqattn.ops.layers import Dropout

COUNT = 400_000
FINE = {"rtol": 1e-4, "atol": 0}  # a share is kept to 1/65536


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_it_drops_the_stated_share_and_scales_the_rest(p):
    out = Dropout(p)(torch.ones(COUNT))
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)), **FINE)
    deviations = (kept.sum().item() - COUNT * (1 - p)) / (COUNT * p * (1 - p)) ** 0.5
    assert abs(deviations) < 4  # binomial, one run in 16 000 lies outside


@pytest.mark.parametrize("p", [0.99, 0.995, 0.999, 0.99999, 1 - 1e-9])
def test_the_mean_stays_however_much_is_dropped(p):
    factors = drop(torch.ones(50 * COUNT), p)
    share = min(p, 1 - 1 / 65536)  # as near as draws of 16 bits come
    deviations = (factors.double().mean().item() - 1) / (share / (1 - share) / len(factors)) ** 0.5
    assert abs(deviations) < 4


@pytest.mark.parametrize("p", [0.1, 0.3, 0.99, 0.995, 0.999, 0.9999, 0.99999])
def test_the_mean_over_all_draws_is_exact(p, monkeypatch):
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.int64)
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_: self.copy_(every))
    assert drop(torch.ones(2**16), p).double().mean().item() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_all_of_it_can_be_dropped(dtype):
    x = torch.ones(COUNT, dtype=dtype, requires_grad=True)
    out = drop(x, 1.0)
    assert torch.equal(out, F.dropout(x, 1.0))
    assert (torch.autograd.grad(out.sum(), x)[0] == 0).all()
    parts = [torch.randn(1, 2, 5, 6) for _ in range(3)]
    assert (short_attention(*parts, None, False, 0.3, dropout=1.0) == 0).all()


def test_neighbors_are_dropped_independently():
    kept = (Dropout(0.5)(torch.ones(COUNT)) != 0).double() * 2 - 1
    for lag in (1, 2, 3, 4, 8):  # four masks come from one draw
        products = (kept[:-lag] * kept[lag:]).sum().item()
        assert abs(products) < 4 * COUNT**0.5


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5, 3), (4, 0)])
def test_any_number_of_elements_will_do(shape):
    x = torch.rand(shape) + 1
    out = Dropout(0.5)(x)
    assert ((out == 0) | (out == 2 * x)).all()


def test_the_backward_pass_drops_what_the_forward_pass_dropped():
    x = torch.rand(3, 50, 7).add(1).transpose(0, 2).requires_grad_()
    out = Dropout(0.3)(x)
    upstream = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, upstream)
    kept = out != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(out, torch.where(kept, x / 0.7, 0.0), **FINE)
    torch.testing.assert_close(gradient, torch.where(kept, upstream / 0.7, 0.0), **FINE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_it_keeps_the_type_of_its_input(dtype):
    out = Dropout(0.5)(torch.ones(1000, dtype=dtype))
    assert out.dtype == dtype
    assert set(out.tolist()) == {0.0, 2.0}


def test_the_same_seed_drops_the_same_and_every_call_drops_anew():
    layer, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(4)
    first, second = layer(x), layer(x)
    torch.manual_seed(4)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


def test_it_is_off_in_evaluation_and_at_zero():
    x = torch.randn(1000)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_compiled_it_still_drops_the_stated_share():
    torch.compiler.reset()
    out = torch.compile(Dropout(0.25), fullgraph=True, backend="aot_eager")(torch.ones(COUNT))
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 4 / 3))
    deviations = (kept.sum().item() - COUNT * 0.75) / (COUNT * 0.25 * 0.75) ** 0.5
    assert abs(deviations) < 4


def test_a_share_just_below_one_drops_nearly_all():
    assert (Dropout(0.9999999)(torch.ones(1000)) != 0).sum() <= 1
