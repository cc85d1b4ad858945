"""Rounded matrices and their products against plain ones."""

import copy

import pytest
import torch
from torch import nn

from seqattn.ops import int8
from seqattn.ops.int8 import Int8Linear, Rounded, plain_int8_linear, round_weights
from seqattn.ops.layers import packed

needs_products = pytest.mark.skipif(not int8.multiplies_int8(), reason="a CPU without VNNI")


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def layer(request):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 700, bias=request.param))
    round_weights(model)
    return model[0]


def test_what_was_rounded_is_rounded_to_itself_and_is_near():
    matrix = torch.randn(40, 24) * torch.logspace(-6, 3, 40)[:, None]
    matrix[3] = 0
    numbers, scale = rounded = Rounded.of(matrix)
    assert numbers.dtype == torch.int8
    assert scale.dtype == torch.bfloat16
    step = matrix.abs().amax(dim=1, keepdim=True) / 127
    assert ((rounded.matrix - matrix).abs() <= 0.51 * step).all()
    again = Rounded.of(rounded.matrix)
    assert torch.equal(again.matrix, rounded.matrix)
    assert torch.equal(again.numbers, numbers)


@needs_products
@torch.inference_mode()
def test_the_product_is_the_plain_one_and_near_that_of_the_weights(layer):
    x = torch.randn(5, 3, 96) * torch.logspace(-3, 3, 5)[:, None, None]
    out = layer(x)
    size = out.abs().amax(dim=-1, keepdim=True)
    torch.testing.assert_close(out / size, plain_int8_linear(layer, x) / size, atol=1e-5, rtol=0)
    exact = nn.functional.linear(x, layer.weight, layer.bias)
    assert ((out - exact).abs() < 0.02 * size).all()
    assert not torch.equal(out, exact)


@torch.inference_mode()
@pytest.mark.parametrize("shape", [(1, 65_536), (2, 32_768), (65_536, 1), (257, 255)])
def test_matrices_of_every_shape_give_their_product(shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(*shape))
    round_weights(model)
    x = torch.randn(5, shape[0])
    expected = plain_int8_linear(model[0], x)
    torch.testing.assert_close(model(x), expected, atol=0.02, rtol=0.02)


@needs_products
@torch.inference_mode()
def test_a_row_is_the_same_in_every_batch_to_the_bit(layer):
    x = torch.randn(65, 96) * torch.logspace(-3, 3, 65)[:, None]
    together = layer(x)
    for rows in (slice(0, 1), slice(3, 20), slice(64, 65)):
        assert torch.equal(layer(x[rows]), together[rows])


@torch.inference_mode()
def test_no_rows_and_rows_of_zeros_and_of_what_is_no_number(layer):
    assert layer(torch.randn(0, 96)).shape == (0, 700)
    bias = 0 if layer.bias is None else layer.bias
    assert torch.equal(layer(torch.zeros(2, 96)), torch.zeros(2, 700) + bias)
    assert layer(torch.full((1, 96), torch.nan)).isnan().all()


def test_with_gradients_or_in_another_precision_it_is_a_plain_layer(layer, monkeypatch):
    x = torch.randn(5, 96, requires_grad=True)
    plain = nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer(x), plain)
    with torch.inference_mode():
        double = copy.deepcopy(layer).double()
        assert double(x.double()).dtype == torch.float64
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        monkeypatch.setattr(int8, "multiplies_int8", lambda: False)
        torch.testing.assert_close(layer(x), plain)


@torch.inference_mode()
def test_packing_an_output_layer_leaves_its_product_in_int8(layer):
    x = torch.randn(5, 96)
    expected = layer(x)
    with packed(layer):
        assert torch.equal(layer(x), expected)


def test_shared_and_small_matrices_are_rounded_and_recurrent_layers_are_left():
    model = nn.ModuleDict(
        {
            "table": nn.Embedding(700, 96),
            "head": nn.Linear(96, 700, bias=False),
            "small": nn.Linear(6, 5),
            "rnn": nn.GRU(6, 5),
        }
    )
    model.head.weight = model.table.weight
    kept, recurrent = model.small.weight.clone(), model.rnn.weight_ih_l0.clone()
    round_weights(model)
    assert model.head.weight is model.table.weight
    assert type(model.head) is Int8Linear
    assert type(model.small) is nn.Linear
    assert 0 < (model.small.weight - kept).abs().max() < 0.01
    assert torch.equal(model.rnn.weight_ih_l0, recurrent)
    assert not any(part.requires_grad for part in model.parameters())
