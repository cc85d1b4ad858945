"""Rotary positions against the complex numbers that they stand for."""

import pytest
import torch

from seqattn.attention.masks import padded_right, positions_of
from seqattn.errors import UserError
from seqattn.positions import RotaryPosition, Stack
from tests.builders import DIM, HEADS, causal_mask, make_attention, make_transformer, padded
from tests.operations import operations

B, T, DH = 2, 5, 6
REAL = torch.ones(B, T, dtype=torch.bool)


def rotated_as_complex_numbers(x, positions, base=10000.0, scaling=1.0):
    """Channel c and c + Dh/2 as one complex number, times exp(i p / (s base^(2c/Dh)))."""
    half = x.shape[-1] // 2
    number = torch.complex(x[..., :half].double(), x[..., half:].double())
    channel = torch.arange(half, dtype=torch.float64)
    angle = positions[..., None].double() / scaling / base ** (2 * channel / x.shape[-1])
    angle = angle[:, None] if positions.dim() == 2 else angle
    turned = number * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), dim=-1)


@pytest.mark.parametrize("positions", [torch.arange(T), torch.tensor([[0, 0, 1, 2, 3]] * B)])
@pytest.mark.parametrize(("base", "scaling"), [(10000.0, 1.0), (500.0, 4.0)])
def test_it_equals_multiplication_by_complex_numbers(positions, base, scaling):
    x = torch.randn(B, HEADS, T, DH)
    ours = RotaryPosition(Stack(DIM, HEADS), base, scaling).rotate(x, positions)
    expected = rotated_as_complex_numbers(x, positions, base, scaling)
    torch.testing.assert_close(ours.double(), expected, atol=1e-5, rtol=1e-5)


def test_scores_depend_on_the_distance_alone():
    scheme = RotaryPosition(Stack(DIM, HEADS))
    q, k = torch.randn(DH).expand(1, 1, 30, DH), torch.randn(DH).expand(1, 1, 30, DH)
    places = torch.arange(30)
    scores = (scheme.rotate(q, places) @ scheme.rotate(k, places).transpose(2, 3))[0, 0]
    for distance in range(-29, 30):
        line = scores.diagonal(-distance)  # i - j == distance
        torch.testing.assert_close(line, line[:1].expand_as(line), atol=1e-4, rtol=1e-4)
    spread = torch.stack([scores.diagonal(-distance)[0] for distance in range(-9, 10)])
    assert spread.unique().numel() == 19


def test_norms_are_kept_and_position_zero_turns_nothing():
    x = torch.randn(B, HEADS, T, DH)
    scheme = RotaryPosition(Stack(DIM, HEADS))
    turned = scheme.rotate(x, torch.arange(100, 100 + T))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(scheme.rotate(x, torch.zeros(T, dtype=torch.long)), x)


def test_positions_are_divided_by_the_scaling():
    x = torch.randn(B, HEADS, T, DH)
    stretched = RotaryPosition(Stack(DIM, HEADS), scaling=4.0).rotate(x, 4 * torch.arange(T))
    torch.testing.assert_close(
        stretched, RotaryPosition(Stack(DIM, HEADS)).rotate(x, torch.arange(T))
    )


def test_an_odd_head_width_is_refused_in_words():
    said = r"^position=rope needs an even head width, got 5 \(20 / 4 heads\); change model"
    with pytest.raises(UserError, match=said):
        RotaryPosition(Stack(20, HEADS)).rotate(torch.randn(B, HEADS, T, 5), torch.arange(T))


def test_attention_over_left_padding_equals_the_written_out_scores_of_the_unpadded_rows():
    attention, scheme = make_attention(), RotaryPosition(Stack(DIM, HEADS))
    x = torch.randn(1, T, DIM)
    real = torch.tensor([[0, 0, 1, 1, 1]], dtype=torch.bool)
    assert positions_of(real).tolist() == [[0, 0, 0, 1, 2]]
    got = attention(x, attention.project(x), causal_mask(real), scheme).output[:, 2:]
    q = attention.query(x[:, 2:]).unflatten(2, (HEADS, DH)).transpose(1, 2)
    k, v = attention.project(x[:, 2:])
    q, k = (rotated_as_complex_numbers(part, torch.arange(3)) for part in (q, k))
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) / DH**0.5).masked_fill(future, -torch.inf)
    context = (scores.softmax(-1) @ v.double()).transpose(1, 2).flatten(2).float()
    torch.testing.assert_close(got, attention.output(context), atol=1e-5, rtol=1e-5)


def test_tables_are_made_once_for_all_layers_of_a_pass():
    model = make_transformer(position=RotaryPosition, dropout=0.0).eval()
    source, target = padded([[4, 5, 6, 3], [5, 3]]), padded([[1, 5, 6], [1, 4, 7]])
    with padded_right(), operations() as names:
        memory = model.encode(source)
        model.features(target, model.start(memory, cached=False))
    assert (names["cos"], names["sin"]) == (2, 2)  # one for each side


def test_tables_are_of_the_positions_and_the_scheme():
    x, places = torch.randn(B, HEADS, T, DIM // HEADS), torch.arange(T)
    one, other = (RotaryPosition(Stack(DIM, HEADS), base=base) for base in (100.0, 10000.0))
    for scheme, at in ((one, places), (other, places), (one, places + 3), (one, places)):
        expected = rotated_as_complex_numbers(x, at, base=scheme.base).float()
        torch.testing.assert_close(scheme.rotate(x, at), expected)
    assert torch.equal(one.rotate(x.half(), places).float(), one.rotate(x.half(), +places).float())
