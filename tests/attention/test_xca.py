"""Cross-covariance attention against loops over channels, and what it cannot do."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.xca import XCAKernel
from seqattn.attention.masks import Mask
from seqattn.positions import Position, Stack
from tests.builders import HEAD_DIM, HEADS, causal_mask, full_mask, randomised
from tests.tolerance import close

B, T = 2, 5
REAL = torch.tensor([[1] * 5, [0, 1, 1, 1, 0]], dtype=torch.bool)
NOWHERE = Position(Stack(HEADS * HEAD_DIM, HEADS))


def inputs(groups, dtype=torch.float32):
    q = torch.randn(B, HEADS, T, HEAD_DIM, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(B, groups, T, HEAD_DIM, dtype=dtype, requires_grad=True) for _ in range(2))
    return q, k, v


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
    q, k, v = inputs(groups)
    tau = kernel.log_tau.exp().double()
    expected = channel_by_channel(q, k, v, tau)
    got = kernel(q, KeysValues(k, v), full_mask(REAL), NOWHERE).context
    close(got.double(), expected)
    upstream = torch.randn(q.shape)
    sources = (q, k, v, kernel.log_tau)
    ours = torch.autograd.grad((got * upstream).sum(), sources)
    theirs = torch.autograd.grad((expected * upstream).sum(), sources)
    for one, other in zip(ours, theirs):
        assert (other != 0).any()
        close(one, other, bound=2e-5)


def test_every_head_starts_at_the_temperature_that_it_is_told():
    torch.testing.assert_close(
        XCAKernel(HeadShape(HEADS, 2, HEAD_DIM), tau=0.25).log_tau.exp(), torch.full((HEADS,), 0.25)
    )


def test_a_mask_that_hides_some_keys_from_some_queries_is_refused():
    kernel = XCAKernel(HeadShape(HEADS, HEADS, HEAD_DIM))
    q, k, v = inputs(HEADS)
    own = Mask(torch.arange(T), torch.arange(T), extra=torch.ones(T, T, dtype=torch.bool))
    for mask in (own, causal_mask(REAL)):
        with pytest.raises(AssertionError):
            kernel(q, KeysValues(k, v), mask, NOWHERE)
