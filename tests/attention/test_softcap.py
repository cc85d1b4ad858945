"""Attention with capped scores, against one query at a time."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.softcap import SoftcapKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from tests.attention.rows import NOWHERE, built, check, inputs, products, seen_keys, weighted


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_context_is_that_of_scores_between_minus_cap_and_cap(groups):
    def row(q, keys, values):
        capped = 1.5 * torch.tanh(products(q, keys) / 1.5)
        return weighted(capped.softmax(-1), values)

    check(built(SoftcapKernel, groups, cap=1.5), row)


def test_a_high_cap_changes_nothing():
    tensors, (mask, _) = inputs(), seen_keys()
    q, new = tensors[0], KeysValues(*tensors[1:])
    capped, plain = built(SoftcapKernel, cap=1e6), built(SoftmaxKernel)
    got, expected = (kernel(q, new, mask, NOWHERE).context for kernel in (capped, plain))
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)
    assert capped.written_out
    assert capped.abilities.copies
