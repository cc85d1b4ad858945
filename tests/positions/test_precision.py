"""Constants of positions are as precise as the model that they serve."""

import math

import torch

from seqattn.positions import ALiBiPosition, RotaryPosition, SinusoidalPosition, Stack

PLACES = torch.tensor([0, 3, 5000])


def test_sinusoids_are_exact_in_float64():
    x = torch.zeros(1, 3, 6, dtype=torch.float64)
    got = SinusoidalPosition(Stack(6, 2)).embed(x, PLACES)
    for t, place in enumerate(PLACES.tolist()):
        for c in range(6):
            angle = place / 10000 ** ((c - c % 2) / 6)
            expected = math.cos(angle) if c % 2 else math.sin(angle)
            assert abs(got[0, t, c].item() - expected) < 1e-11


def test_rotations_are_exact_in_float64():
    x = torch.randn(1, 1, 3, 6, dtype=torch.float64)
    got = RotaryPosition(Stack(6, 1)).rotate(x, PLACES)
    for t, place in enumerate(PLACES.tolist()):
        for c in range(3):
            angle = place / 10000 ** (2 * c / 6)
            one, other = x[0, 0, t, c].item(), x[0, 0, t, c + 3].item()
            turned = one * math.cos(angle) - other * math.sin(angle)
            assert abs(got[0, 0, t, c].item() - turned) < 1e-11


def test_slopes_are_exact_in_float64():
    q = torch.zeros(1, 12, 1, 2, dtype=torch.float64)
    got = ALiBiPosition(Stack(24, 12)).score_term(q, q, PLACES[2:], PLACES[:1])
    for h in range(12):
        power = -(h + 1) if h < 8 else -(2 * (h - 8) + 1) / 2
        assert abs(got[0, h, 0, 0].item() + 5000 * 2**power) < 1e-9
