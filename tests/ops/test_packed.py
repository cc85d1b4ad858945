"""Packed weights against the layer's own product."""

import torch

from seqattn.ops.packed import packed


def test_packed_weights_give_the_same_product_and_leave_the_layer_as_it_was():
    layer, x = torch.nn.Linear(24, 700), torch.randn(5, 3, 24)
    with torch.inference_mode():
        expected = layer(x)
        with packed(layer):
            torch.testing.assert_close(layer(x), expected)
            half = layer.weight.bfloat16(), layer.bias.bfloat16()
            with torch.autocast("cpu", torch.bfloat16):
                rough = layer(x)
        torch.testing.assert_close(rough, torch.nn.functional.linear(x.bfloat16(), *half))
        layer.weight.zero_()
        assert torch.equal(layer(x), layer.bias.expand(5, 3, 700))


def test_blocks_may_overlap_as_those_of_threads_do():
    layer, x = torch.nn.Linear(24, 700), torch.randn(5, 24)
    expected, first, second = layer(x), packed(layer), packed(layer)
    for block in (first, second):
        block.__enter__()
    for block in (first, second):
        block.__exit__(None, None, None)
        torch.testing.assert_close(layer(x), expected)
    assert "forward" not in vars(layer)
