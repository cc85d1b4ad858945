"""ALiBi's slopes as published, and its term pair by pair."""

import pytest
import torch

from seqattn.positions import ALiBiPosition, Stack

EIGHT = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
SIXTEEN = [
    0.7071067812, 0.5, 0.3535533906, 0.25, 0.1767766953, 0.125, 0.0883883476, 0.0625,
    0.0441941738, 0.03125, 0.0220970869, 0.015625, 0.0110485435, 0.0078125, 0.0055242717,
    0.00390625,
]  # fmt: skip
TWELVE = [*EIGHT, 0.7071067812, 0.3535533906, 0.1767766953, 0.0883883476]
SLOPES = {
    1: [1 / 256],
    2: [1 / 16, 1 / 256],
    3: [1 / 16, 1 / 256, 1 / 4],
    4: [1 / 4, 1 / 16, 1 / 64, 1 / 256],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],
    8: EIGHT,
    12: TWELVE,
    16: SIXTEEN,
}


@pytest.mark.parametrize("num_heads", SLOPES)
def test_the_term_is_the_published_slope_times_the_distance(num_heads):
    position = ALiBiPosition(Stack(2 * num_heads, num_heads))
    q, k = torch.randn(2, num_heads, 3, 2).double(), torch.randn(2, 1, 5, 2).double()
    q_places, k_places = torch.tensor([2, 3, 4]), torch.arange(5)
    got = position.score_term(q, k, q_places, k_places)
    assert got.shape == (1, num_heads, 3, 5)
    for h, slope in enumerate(SLOPES[num_heads]):
        for t, i in enumerate((2, 3, 4)):
            for j in range(5):
                assert got[0, h, t, j].item() == pytest.approx(-slope * abs(i - j), rel=1e-6)


def test_slopes_equal_those_of_transformers_for_any_number_of_heads():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for num_heads in range(1, 40):
        tokens = torch.ones(1, 2)
        theirs = bloom.build_alibi_tensor(tokens, num_heads, torch.float32)[:, 0, 1]  # distance 1
        q, place = torch.zeros(1, num_heads, 1, 2), torch.zeros(1, dtype=torch.long)
        ours = ALiBiPosition(Stack(2 * num_heads, num_heads)).score_term(q, q, place + 1, place)
        torch.testing.assert_close(-ours[0, :, 0, 0], theirs)


def test_nothing_is_learned_or_stored():
    position = ALiBiPosition(Stack(24, 4))
    assert not position.state_dict()
    assert not list(position.parameters())
    assert position.hooks == frozenset({"score_term"})
