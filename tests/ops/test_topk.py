"""The largest numbers of several rows, against a look at every number."""

import pytest
import torch

from seqattn.ops.topk import largest, plain_largest


@pytest.mark.parametrize("size", [2, 50, 768, 1000, 1025, 1027, 4096])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_looking_into_the_best_blocks_finds_what_looking_everywhere_does(size, count):
    x, bonus = torch.randn(3, 5, size), torch.randn(3, 5)
    x[0, 0, -1] = 9.0  # in the ragged tail
    x[1, :, : size // 2] = -torch.inf
    bonus[2, 1:] = -torch.inf  # one live beam
    count = min(count, size)
    values, places = largest(x, bonus, count, size=16)
    expected, where = plain_largest(x, bonus, count)
    assert torch.equal(values, expected)
    assert torch.equal(places, where)
