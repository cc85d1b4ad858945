"""Arrays keep their numbers to half a step."""

import pytest
import torch

from seqattn.extras.report.arrays import LEVELS, packed
from tests.extras.report.samples import unpacked


@pytest.mark.parametrize("low", [0.0, -0.3])
def test_no_number_is_off_by_more_than_half_a_step(low):
    values = low + torch.rand(2, 3, 5, dtype=torch.float64) * (1 - low)
    found = torch.from_numpy(unpacked(packed(values)))
    assert found.shape == values.shape
    half = (max(1.0, float(values.max())) - min(low, 0.0)) / LEVELS / 2
    assert 0 < (found - values).abs().max() <= half * 1.0001


def test_a_weight_of_0_stays_0_and_the_largest_stays_itself():
    found = unpacked(packed(torch.tensor([0.0, 1e-3, 0.7])))
    assert found[0] == 0
    assert found[2] == pytest.approx(0.7)


def test_nothing_and_zeros_alone_can_be_packed():
    assert unpacked(packed(torch.zeros(2, 0))).shape == (2, 0)
    assert (unpacked(packed(torch.zeros(3))) == 0).all()
