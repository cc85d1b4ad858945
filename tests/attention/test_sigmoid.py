"""Sigmoid attention, against one query at a time."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.sigmoid import SigmoidKernel
from tests.attention.rows import NOWHERE, built, check, inputs, products, seen_keys, weighted


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [None, -1.5])
@pytest.mark.parametrize("learned", [False, True])
def test_each_weight_is_the_sigmoid_of_its_score_and_the_bias(groups, bias, learned):
    kernel = built(SigmoidKernel, groups, bias=bias, learned=learned)

    def row(q, keys, values):
        count = torch.tensor(keys.shape[1], dtype=torch.float64)
        shift = kernel.shift[:, None] if learned else 0
        scores = products(q, keys) + (-count.log() if bias is None else bias) + shift
        return weighted(1 / (1 + (-scores).exp()), values)

    check(kernel, row)


def test_equal_scores_have_a_total_weight_near_one_whatever_the_number_of_keys():
    (q, *new), (mask, seen), maps = inputs(), seen_keys(), []
    kernel = built(SigmoidKernel)
    kernel.observers = (maps.append,)
    kernel(torch.zeros_like(q), KeysValues(*new), mask, NOWHERE)
    count = seen.sum(-1)[:, None].expand_as(maps[0][..., 0]).double()
    torch.testing.assert_close(maps[0].sum(-1), count / (count + 1))
    assert not kernel.abilities.copies
