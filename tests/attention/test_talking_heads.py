"""Talking-heads attention, against one query at a time."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.talking_heads import TalkingHeadsKernel
from tests.attention.rows import NOWHERE, built, check, inputs, products, seen_keys, weighted
from tests.builders import HEAD_DIM, HEADS


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_scores_and_weights_are_mixed_between_heads(groups):
    kernel = built(TalkingHeadsKernel, groups)

    def row(q, keys, values):
        scores, mixed = products(q, keys), []
        for one in kernel.mix_scores:
            mixed.append(sum(share * score for share, score in zip(one, scores)).softmax(-1))
        weights = [sum(share * x for share, x in zip(one, mixed)) for one in kernel.mix_weights]
        return weighted(torch.stack(weights), values)

    check(kernel, row)


def test_it_begins_as_softmax_attention():
    shape, (q, *new), (mask, _) = HeadShape(HEADS, 2, HEAD_DIM), inputs(), seen_keys()
    got, expected = (
        kernel(shape)(q, KeysValues(*new), mask, NOWHERE).context
        for kernel in (TalkingHeadsKernel, SoftmaxKernel)
    )
    torch.testing.assert_close(got, expected)
