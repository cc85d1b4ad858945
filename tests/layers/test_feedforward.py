"""The feed-forward sublayer written out."""

import math
from typing import get_args

import pytest
import torch

from seqattn.layers.sublayers import Activation, FeedForward
from tests.builders import randomised

B, T, D, INNER = 2, 5, 6, 10


def gelu(z):
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


def gelu_tanh(z):
    return z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 2


def silu(z):
    return z / (1 + (-z).exp())


def gated_by(function):
    return lambda z: function(z[..., :INNER]) * z[..., INNER:]


WRITTEN_OUT = {
    "relu": lambda z: z.clamp(min=0),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "swiglu": gated_by(silu),
    "geglu": gated_by(gelu),
    "geglu_tanh": gated_by(gelu_tanh),
}


@pytest.mark.parametrize("activation", sorted(WRITTEN_OUT))
def test_it_equals_two_matrices_with_the_written_out_nonlinearity_between(activation):
    layer = randomised(FeedForward(D, INNER, activation)).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    z = x @ layer.inner.weight.T + layer.inner.bias
    expected = WRITTEN_OUT[activation](z) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(x), expected)


def test_every_activation_is_written_out_and_there_may_be_no_biases():
    assert set(WRITTEN_OUT) == set(get_args(Activation))
    layer = FeedForward(D, INNER, "geglu", bias=False)
    assert [*dict(layer.named_parameters())] == ["inner.weight", "outer.weight"]


def test_swiglu_has_a_third_matrix_of_the_same_size():
    assert FeedForward(D, INNER, "swiglu").inner.weight.shape == (2 * INNER, D)
    assert FeedForward(D, INNER, "relu").inner.weight.shape == (INNER, D)


@pytest.mark.parametrize("activation", sorted(WRITTEN_OUT))
def test_each_matrix_is_drawn_for_its_own_size(activation):
    layer = FeedForward(30, 50, activation)
    bound = math.sqrt(6 / (30 + 50))  # Glorot and Bengio 2010, eq. 16
    for matrix in (*layer.inner.weight.split(50), layer.outer.weight):
        assert 0.95 * bound < matrix.abs().max().item() <= bound
    assert not layer.inner.bias.any()
    assert not layer.outer.bias.any()
