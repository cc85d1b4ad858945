"""Differential attention, against one query at a time."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.differential import DifferentialKernel
from seqattn.errors import UserError
from tests.attention.rows import NOWHERE, built, check, inputs, seen_keys
from tests.builders import HEAD_DIM, HEADS
from tests.pages import program


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_pair_of_heads_takes_the_difference_of_its_weights_and_a_joint_norm(groups):
    kernel = built(DifferentialKernel, groups, initial=0.3)

    def row(q, keys, values):
        a1, b1, a2, b2 = kernel.vectors
        factor = torch.exp(a1 @ b1) - torch.exp(a2 @ b2) + 0.3
        pair = program("arithmetic.py").differential_attention
        pairs = [
            pair(*(part[one : one + 2] for part in (q, keys, values)), factor, 0.3, kernel.scale)
            for one in range(0, HEADS, 2)
        ]
        return torch.cat(pairs).unflatten(0, (HEADS, -1))

    check(kernel, row)


def test_shown_weights_are_the_differences():
    kernel, (q, *new), (mask, seen), maps = built(DifferentialKernel), inputs(), seen_keys(), []
    kernel.observers = (maps.append,)
    kernel(q, KeysValues(*new), mask, NOWHERE)
    assert torch.equal(maps[0][:, ::2], maps[0][:, 1::2])
    a1, b1, a2, b2 = kernel.vectors
    left = 1 - (torch.exp(a1 @ b1) - torch.exp(a2 @ b2) + 0.8)
    total = left * seen.any(-1)[:, None].expand(-1, HEADS, -1)
    torch.testing.assert_close(maps[0].sum(-1), total)


def test_an_odd_number_of_heads_is_refused():
    with pytest.raises(
        UserError, match=r"^attention\.num_heads must be even for DifferentialKernel, got 3"
    ):
        DifferentialKernel(HeadShape(3, 3, HEAD_DIM))
