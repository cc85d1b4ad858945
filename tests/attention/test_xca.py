"""Cross-covariance attention against loops over channels, and what it cannot do."""

import pytest
import torch

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.xca import XCAKernel
from tests.attention.local import assert_equal_in_value_and_gradient, inputs, plain, run
from tests.builders import HEAD_DIM, HEADS, randomised

B, T = 2, 5
REAL = torch.tensor([[1] * 5, [0, 1, 1, 1, 0]], dtype=torch.bool)


def channel_by_channel(q, k, v, tau):
    """The definition in float64, over the real tokens alone."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    q, k, v = q.double(), k.double(), v.double()
    for b in range(B):
        real = REAL[b]
        for h in range(HEADS):
            g = h * k.shape[1] // HEADS
            for i in range(HEAD_DIM):
                ours = q[b, h, real, i]
                scores = torch.stack(
                    [
                        ours @ k[b, g, real, j] / ours.norm() / k[b, g, real, j].norm() / tau[h]
                        for j in range(HEAD_DIM)
                    ]
                )
                out[b, h, real, i] = v[b, g, real] @ scores.softmax(0)
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_equals_the_definition_in_value_and_gradient(groups):
    kernel = randomised(XCAKernel(HeadShape(HEADS, groups, HEAD_DIM), tau=0.3))
    tensors = inputs(T, groups)
    expected = channel_by_channel(*tensors, kernel.log_tau.exp().double())
    got = run(kernel, tensors, plain(T, causal=False, real=REAL))
    assert_equal_in_value_and_gradient(got, expected, (*tensors, kernel.log_tau))


def test_every_head_starts_at_the_temperature_that_it_is_told():
    torch.testing.assert_close(
        XCAKernel(HeadShape(HEADS, 2, HEAD_DIM), tau=0.25).log_tau.exp(), torch.full((HEADS,), 0.25)
    )
