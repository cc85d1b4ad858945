"""Additive attention over whole sequences, against one pair of a query and a key at a time."""

import pytest
import torch

from seqattn.attention.kernels import additive
from seqattn.attention.kernels.additive import AdditiveKernel
from tests.attention.rows import built, check, weighted


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("block", [1 << 20, 700, 1])
def test_a_score_is_a_vector_times_the_tanh_of_the_sum(groups, block, monkeypatch):
    monkeypatch.setattr(additive, "_BLOCK_NUMBERS", block)
    kernel = built(AdditiveKernel, groups)

    def row(q, keys, values):
        scores = [
            torch.stack([(v * (one + key).tanh()).sum() for key in head])
            for one, head, v in zip(q, keys, kernel.v)
        ]
        return weighted(torch.stack(scores).softmax(-1), values)

    check(kernel, row)


def test_its_scores_are_no_products_to_rotate():
    assert "rotate" not in AdditiveKernel.abilities.hooks
    assert AdditiveKernel.abilities.copies
