"""Norms and residual connections written out."""

import pytest
import torch

from seqattn.layers.sublayers import Residual, make_norm
from tests.builders import randomised

B, T, D = 2, 5, 6


def layernorm(x, norm):
    centered = x - x.mean(-1, keepdim=True)
    spread = (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centered / spread * norm.weight + norm.bias


def rmsnorm(x, norm):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


WRITTEN_OUT = {"layernorm": layernorm, "rmsnorm": rmsnorm}


@pytest.mark.parametrize("kind", sorted(WRITTEN_OUT))
@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_residual_connection_equals_the_written_out_one(kind, pre_norm):
    block = randomised(Residual(make_norm(kind, D), pre_norm, dropout=0.0)).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    norm = WRITTEN_OUT[kind]
    expected = (
        x + torch.tanh(norm(x, block.norm)) if pre_norm else norm(x + torch.tanh(x), block.norm)
    )
    torch.testing.assert_close(block(x, torch.tanh), expected)


def test_a_branch_may_have_a_norm_of_its_own():
    norms = make_norm("layernorm", D), make_norm("rmsnorm", D)
    block = randomised(Residual(norms[0], True, 0.0, branch_norm=norms[1]))
    x = torch.randn(B, T, D)
    expected = x + rmsnorm(torch.tanh(layernorm(x, norms[0])), norms[1])
    torch.testing.assert_close(block(x, torch.tanh), expected)
    assert make_norm("layernorm", D, bias=False).bias is None


def test_dropout_falls_on_the_branch_and_never_on_the_stream():
    block = Residual(make_norm("layernorm", D), pre_norm=True, dropout=0.5)
    x = torch.randn(200, D)
    branch = block(x, torch.ones_like) - x
    dropped, scaled = branch.abs() < 1e-5, (branch - 2).abs() < 1e-5
    assert (dropped | scaled).all()
    assert dropped.any()
    assert scaled.any()


def test_without_training_a_post_norm_branch_drops_nothing():
    block = Residual(make_norm("rmsnorm", D), pre_norm=False, dropout=0.5).eval()
    x = torch.randn(B, T, D)
    torch.testing.assert_close(block(x, torch.ones_like), rmsnorm(x + 1, block.norm))
