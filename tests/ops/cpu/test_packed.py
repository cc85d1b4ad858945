"""Packed weights against the layer's own product."""

import pytest
import torch
import torch.nn.functional as F

from seqattn import ops
from seqattn.ops import layers
from seqattn.ops.cpu import onednn
from seqattn.ops.layers import Linear, packed

pytestmark = pytest.mark.skipif(not onednn.can_pack(), reason="this PyTorch has no such operators")


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch):
    monkeypatch.setattr(ops, "LEAST", 1)
    for name in ("_LARGE", "_LARGE_FOR_MKL"):
        monkeypatch.setattr(layers, name, 1)


@pytest.mark.parametrize("lags", [True, False])
def test_weights_give_the_same_product_and_leave_the_layer_as_it_was(monkeypatch, lags):
    monkeypatch.setattr(onednn, "mkl_lags", lambda: lags)
    layer, x = Linear(24, 700), torch.randn(5, 3, 24)
    with torch.inference_mode():
        expected = F.linear(x, layer.weight, layer.bias)
        with packed(torch.nn.Sequential(layer)):
            with monkeypatch.context() as patch:
                patch.setattr(F, "linear", None)  # another operator multiplies
                torch.testing.assert_close(layer(x), expected)
            half = layer.weight.bfloat16(), layer.bias.bfloat16()
            with torch.autocast("cpu", torch.bfloat16):
                rough = layer(x)
        torch.testing.assert_close(rough, F.linear(x.bfloat16(), *half))
        layer.weight.zero_()
        assert torch.equal(layer(x), layer.bias.expand(5, 3, 700))


def test_only_large_ones_are_packed_where_mkl_is_as_quick(monkeypatch):
    monkeypatch.setattr(onednn, "mkl_lags", lambda: False)
    monkeypatch.setattr(layers, "_LARGE_FOR_MKL", 24 * 700)
    model = torch.nn.ModuleList([Linear(24, 700), Linear(24, 699)])
    with packed(model):
        assert [layer.packed is not None for layer in model] == [True, False]


def test_blocks_may_overlap_as_those_of_threads_do():
    layer, x = Linear(24, 700), torch.randn(5, 24)
    expected, first, second = layer(x), packed(layer), packed(layer)
    for block in (first, second):
        block.__enter__()
    for block in (first, second):
        block.__exit__(None, None, None)
        torch.testing.assert_close(layer(x), expected)
    assert layer.packed is None
