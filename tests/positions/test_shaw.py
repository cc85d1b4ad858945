"""Shaw's relative position representations against loops over pairs."""

import pytest
import torch

from seqattn.attention.masks import Mask
from seqattn.positions import ShawPosition, Stack
from tests.builders import DIM, HEADS, causal_mask, full_mask, heads, make_attention, randomised
from tests.operations import Largest

B, T, S, DH, K = 2, 5, 7, 6, 3


def built(values=True):
    torch.manual_seed(0)
    scheme = ShawPosition(Stack(DIM, HEADS, 1), max_distance=K, values=values)
    return randomised(scheme).double().at_layer(0)


def vector(table, i, j):
    """w_{clip(j - i, k)}; the first row of the table is for the key furthest behind i = j + k."""
    clipped = max(-K, min(K, j - i))
    return table[K - clipped]


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_the_term_equals_equation_5_pair_by_pair(num_kv_heads):
    position = built()
    q = torch.randn(B, HEADS, T, DH, dtype=torch.float64)
    k = torch.randn(B, num_kv_heads, S, DH, dtype=torch.float64)
    q_places, k_places = torch.tensor([4, 5, 6, 7, 8]), torch.arange(S)
    got = position.score_term(q, k, q_places, k_places)
    for b in range(B):
        for h in range(HEADS):
            for t, i in enumerate(q_places.tolist()):
                for s, j in enumerate(k_places.tolist()):
                    expected = q[b, h, t] @ vector(position.keys, i, j) / DH**0.5
                    torch.testing.assert_close(got[b, h, t, s], expected)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("make", [full_mask, causal_mask])
@pytest.mark.parametrize("values", [True, False])
def test_attention_equals_equations_3_and_4_written_as_loops(num_kv_heads, make, values):
    position, attention = built(values), make_attention(heads(HEADS, num_kv_heads)).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    mask = make(torch.tensor([[1] * T, [1, 1, 1, 1, 0]], dtype=torch.bool))
    got = attention(x, attention.project(x), mask, position).output
    q = attention.query(x).unflatten(2, (HEADS, DH)).transpose(1, 2)
    keys, contents = attention.project(x)
    seen, group = mask.dense().expand(B, HEADS, T, T), HEADS // num_kv_heads
    context = torch.zeros(B, T, HEADS, DH, dtype=torch.float64)
    for b in range(B):
        for h in range(HEADS):
            for i in range(T):
                js = [j for j in range(T) if seen[b, h, i, j]]
                k = [keys[b, h // group, j] + vector(position.keys, i, j) for j in js]
                v = [contents[b, h // group, j] for j in js]
                if values:
                    v = [each + vector(position.values, i, j) for each, j in zip(v, js)]
                weights = (torch.stack(k) @ q[b, h, i] / DH**0.5).softmax(0)
                context[b, i, h] = weights @ torch.stack(v)
    torch.testing.assert_close(got, attention.output(context.flatten(2)))


def test_the_value_term_sums_weights_by_clipped_distance_also_in_rows_of_their_own():
    position = built()
    weights = torch.rand(B, HEADS, T, S, dtype=torch.float64, requires_grad=True)
    q_places = torch.tensor([[0, 1, 2, 3, 4], [6, 7, 8, 9, 10]])
    k_places = torch.tensor([[0, 1, 2, 3, 4, 4, 4], [4, 3, 9, 6, 12, 7, 0]])
    got = position.value_term(weights, q_places, k_places)
    expected = torch.zeros(B, HEADS, T, DH, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                row = vector(position.values, int(q_places[b, t]), int(k_places[b, s]))
                expected[b, :, t] += weights[b, :, t, s, None] * row
    torch.testing.assert_close(got, expected)
    pull = torch.randn_like(got)
    (ours,) = torch.autograd.grad(got, weights, pull)
    (theirs,) = torch.autograd.grad(expected, weights, pull)
    torch.testing.assert_close(ours, theirs)


def test_sums_of_many_weights_are_not_rounded_away_in_half_precision():
    position = built().bfloat16()
    weights = torch.full((1, HEADS, 1, 4000), 1 / 4000, dtype=torch.bfloat16)
    got = position.value_term(weights, torch.tensor([4000]), torch.arange(4000))
    expected = position.values[-1].float().expand(1, HEADS, 1, DH)  # nearly all at the far end
    torch.testing.assert_close(got.float(), expected, rtol=0.02, atol=0.02)


def test_without_values_weights_need_not_be_written_out():
    assert built(values=False).hooks == frozenset({"score_term"})
    assert built(values=True).hooks == frozenset({"score_term", "value_term"})
    assert built(values=False).values is None
    assert (
        built(values=False).value_term(torch.rand(1, 4, 1, 1), torch.ones(1), torch.ones(1)) is None
    )


def test_beams_with_values_equal_each_beam_alone():
    attention, position = make_attention(heads(HEADS, 2)).double(), built()
    x, beams = torch.randn(4, 3, DIM, dtype=torch.float64), 2
    order = torch.tensor([[1, 0], [1, 1]])
    cache, places = attention.make_cache(beams), torch.arange(3)
    for t in range(2):
        token = x[:, t : t + 1]
        mask = Mask(places[t : t + 1], places[: t + 1], causal=True)
        attention(token, attention.project(token), mask, position, cache)
    cache.reorder(order)
    flat = (order + torch.tensor([[0], [2]])).flatten()
    x = torch.cat((x[flat, :2], x[:, 2:]), dim=1)
    token, mask = x[:, 2:], Mask(places[2:], places, causal=True)
    got = attention(token, attention.project(token), mask, position, cache).output
    mask = causal_mask(torch.ones(4, 3, dtype=torch.bool))
    whole = attention(x, attention.project(x), mask, position).output
    torch.testing.assert_close(got, whole[:, 2:])


def test_no_tensor_of_queries_by_keys_by_width_is_made():
    n = 300
    position = ShawPosition(Stack(DIM, HEADS, 1), max_distance=K).at_layer(0)
    q = torch.randn(1, HEADS, n, DH, requires_grad=True)
    with Largest() as largest:
        position.score_term(q, q, torch.arange(n), torch.arange(n)).sum().backward()
    assert largest.numbers == HEADS * n * n
