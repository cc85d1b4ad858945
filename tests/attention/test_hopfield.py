"""Hopfield attention, against one query at a time."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.hopfield import HopfieldKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from tests.attention.rows import NOWHERE, built, check, inputs, products, seen_keys, weighted
from tests.builders import HEAD_DIM, HEADS


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_query_is_updated_by_the_keys_that_it_retrieves(groups, steps):
    kernel = built(HopfieldKernel, groups, steps=steps)
    beta = kernel.log_beta.exp()[:, None]

    def row(q, keys, values):
        for _ in range(steps - 1):
            q = weighted((beta * products(q, keys)).softmax(-1), keys)
        return weighted((beta * products(q, keys)).softmax(-1), values)

    check(kernel, row)


def test_one_step_begins_as_softmax_attention():
    shape, (q, *new), (mask, _) = HeadShape(HEADS, 2, HEAD_DIM), inputs(), seen_keys()
    kernels = HopfieldKernel(shape, steps=1), SoftmaxKernel(shape)
    got, expected = (kernel(q, KeysValues(*new), mask, NOWHERE).context for kernel in kernels)
    torch.testing.assert_close(got, expected)


def test_under_autocast_only_queries_keys_and_values_are_rounded():
    kernel, (mask, _) = HopfieldKernel(HeadShape(HEADS, 2, HEAD_DIM), steps=4), seen_keys()
    q, *new = (x.detach().bfloat16() for x in inputs())
    with torch.autocast("cpu", torch.bfloat16):
        rough = kernel(q, KeysValues(*new), mask, NOWHERE).context
    exact = kernel(q.float(), KeysValues(*(x.float() for x in new)), mask, NOWHERE).context
    torch.testing.assert_close(rough.float(), exact, atol=1e-3, rtol=1e-2)
    assert set(kernel.exceptions) == {"autocast"}
    assert not HopfieldKernel(HeadShape(HEADS, 2, HEAD_DIM), steps=1).exceptions


def test_a_high_beta_retrieves_the_nearest_key():
    kernel, (_, keys, values) = HopfieldKernel(HeadShape(HEADS, HEADS, HEAD_DIM)), inputs(HEADS)
    kernel.log_beta.data.fill_(6.0)
    keys = torch.nn.functional.normalize(keys.detach(), dim=-1)
    mask, maps = Mask(torch.arange(5), torch.arange(keys.shape[2])), []
    kernel.observers = (maps.append,)
    noisy = keys[:, :, :5] + 0.05 * torch.randn_like(keys[:, :, :5])
    kernel(noisy, KeysValues(keys, values.detach()), mask, NOWHERE)
    own = maps[0].diagonal(dim1=2, dim2=3)
    assert (own > 0.9).float().mean() > 0.9
