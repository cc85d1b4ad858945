"""Positions that are added to the embeddings, against their formulas."""

import math

import pytest
import torch

from seqattn.errors import UserError
from seqattn.positions import LearnedPosition, Position, SinusoidalPosition, Stack

B, T = 2, 5


def formula(position, dim):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(the same), in Python floats."""
    row = []
    for channel in range(dim):
        angle = position / 10000 ** (channel // 2 * 2 / dim)
        row.append(math.cos(angle) if channel % 2 else math.sin(angle))
    return row


@pytest.mark.parametrize("dim", [1, 2, 7, 24])
def test_sinusoidal_positions_equal_the_formula_at_even_and_odd_widths(dim):
    x = torch.randn(B, T, dim)
    out = SinusoidalPosition(Stack(dim, 4)).embed(x, torch.arange(T))
    table = torch.tensor([formula(p, dim) for p in range(T)])
    torch.testing.assert_close(out, x + table, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dim", [4, 5, 8])
def test_sinusoids_of_other_toolkits_equal_their_formula(dim):
    """All sines before all cosines, from position 2, with 10000 at the last pair of channels."""
    scheme = SinusoidalPosition(Stack(dim, 1), layout="halves", first=2, endpoint=True)
    out = scheme.embed(torch.zeros(1, T, dim), torch.arange(T))
    pairs = (dim + 1) // 2
    angles = [[(p + 2) / 10000 ** (i / (pairs - 1)) for i in range(pairs)] for p in range(T)]
    table = [[*map(math.sin, row), *map(math.cos, row)][:dim] for row in angles]
    torch.testing.assert_close(out[0], torch.tensor(table), atol=1e-5, rtol=1e-5)


def test_an_endpoint_needs_two_wavelengths():
    with pytest.raises(UserError, match=r"endpoint needs model\.dim of at least 4, got 2"):
        SinusoidalPosition(Stack(2, 1), endpoint=True)


def test_sinusoidal_positions_may_differ_from_row_to_row_and_start_anywhere():
    positions = torch.tensor([[0, 0, 1, 2, 3], [995, 996, 997, 998, 999]])
    x = torch.randn(B, T, 6)
    out = SinusoidalPosition(Stack(6, 4)).embed(x, positions)
    table = torch.tensor([[formula(p, 6) for p in row] for row in positions.tolist()])
    torch.testing.assert_close(out, x + table, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sinusoidal_positions_keep_the_type_of_the_embeddings(dtype):
    out = SinusoidalPosition(Stack(6, 4)).embed(torch.zeros(1, T, 6, dtype=dtype), torch.arange(T))
    expected = torch.tensor([[formula(p, 6) for p in range(T)]], dtype=torch.float32)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=4e-3, rtol=4e-3)


def test_learned_positions_add_the_row_of_each_position_and_train_only_it():
    scheme = LearnedPosition(Stack(6, 4), max_length=9)
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 8]])
    x = torch.randn(B, T, 6)
    out = scheme.embed(x, positions)
    for b in range(B):
        for t in range(T):
            expected = x[b, t] + scheme.table.weight[positions[b, t]]
            torch.testing.assert_close(out[b, t], expected)
    out.sum().backward()
    uses = torch.bincount(positions.flatten(), minlength=9).float()
    assert torch.equal(scheme.table.weight.grad, uses[:, None].expand(9, 6))


@pytest.mark.parametrize("start", [0, 3])
def test_learned_positions_past_the_last_are_refused_in_words(start):
    scheme = LearnedPosition(Stack(6, 4), max_length=T + start)
    x = torch.randn(B, T + 1, 6)
    assert scheme.embed(x[:, :T], torch.arange(start, start + T)).isfinite().all()
    with pytest.raises(UserError) as caught:
        scheme.embed(x, torch.arange(start, start + T + 1))
    assert str(caught.value) == (
        f"position=learned supports at most position.max_length ({T + start}) tokens, got "
        f"{T + start + 1}; shorten it, or train with a larger position.max_length"
    )


def test_learned_positions_say_how_long_a_sequence_may_be_and_others_have_no_limit():
    assert LearnedPosition(Stack(6, 4), max_length=9).max_length == 9
    assert SinusoidalPosition(Stack(6, 4)).max_length is None
    assert Position(Stack(6, 4)).max_length is None


def test_no_position_leaves_everything_as_it_is():
    scheme, positions = Position(Stack(24, 4)), torch.arange(T)
    x, q, k = torch.randn(B, T, 24), torch.randn(B, 4, T, 6), torch.randn(B, 2, T, 6)
    assert scheme.hooks == frozenset()
    assert scheme.embed(x, positions) is x
    assert scheme.rotate(q, positions) is q
    assert scheme.score_term(q, k, positions, positions) is None
    assert scheme.value_term(torch.rand(B, 4, T, T), positions, positions) is None
    assert scheme.score_scale(6) == pytest.approx(1 / math.sqrt(6))
    assert scheme.at_layer(3) is scheme
