"""What holds of every scheme that adds a term to the scores, whatever its formula."""

from functools import partial

import pytest
import torch

from seqattn.positions import (
    ALiBiPosition,
    DeBERTaPosition,
    DisentangledPosition,
    ShawPosition,
    Stack,
    T5Position,
)
from tests.builders import DIM, HEADS, randomised

B, T, S, DH = 2, 5, 7, 6
SCHEMES = {
    "shaw": partial(ShawPosition, max_distance=3),
    "shaw with values": partial(ShawPosition, max_distance=3, values=True),
    "alibi": ALiBiPosition,
    "t5": partial(T5Position, num_buckets=8, max_distance=9),
    "disentangled": partial(DisentangledPosition, max_distance=3),
    "deberta": partial(DeBERTaPosition, max_relative_positions=3),
    "deberta, long": partial(DeBERTaPosition, max_relative_positions=20),
    "deberta, released": partial(DeBERTaPosition, max_relative_positions=3, released=True),
}
TABLES = [name for name in SCHEMES if name != "alibi"]


def built(name, bidirectional=True, layers=2, dtype=torch.float32):
    torch.manual_seed(0)
    scheme = SCHEMES[name](Stack(DIM, HEADS, layers, bidirectional))
    return randomised(scheme).to(dtype).eval()


def layer(name, bidirectional=True, dtype=torch.float32):
    return built(name, bidirectional, dtype=dtype).at_layer(1)


def queries_and_keys(num_kv_heads=HEADS, dtype=torch.float32):
    q = torch.randn(B, HEADS, T, DH, dtype=dtype)
    return q, torch.randn(B, num_kv_heads, S, DH, dtype=dtype)


def everywhere(term):
    return term.expand(B, HEADS, T, S)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_term_depends_on_the_distance_alone_and_really_on_it(name, bidirectional):
    position = layer(name, bidirectional)
    q, k = (torch.randn(DH).expand(1, HEADS, 12, DH) for _ in range(2))
    places = torch.arange(12)
    term = position.score_term(q, k, places, places)[0]
    for distance in range(-11, 12):
        line = term.diagonal(-distance, dim1=1, dim2=2)  # i - j == distance
        torch.testing.assert_close(line, line[:, :1].expand_as(line))
    moved = position.score_term(q, k, places + 1000, places + 1000)[0]
    torch.testing.assert_close(moved, term)
    past = term[:, 11, 9:].T  # distances 2, 1, 0 of every head
    for head in past.T:
        assert head.unique().numel() == 3


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_positions_of_one_row_of_many_and_of_mixed_rows_give_the_same(name, num_kv_heads):
    position = layer(name)
    q, k = queries_and_keys(num_kv_heads)
    q_places, k_places = torch.arange(2, 2 + T), torch.arange(S)
    expected = everywhere(position.score_term(q, k, q_places, k_places))
    for rows in ((B, 1), (1, B), (B, B)):
        q_rows, k_rows = (
            places.expand(count, -1) if count > 1 else places
            for places, count in zip((q_places, k_places), rows)
        )
        torch.testing.assert_close(everywhere(position.score_term(q, k, q_rows, k_rows)), expected)


@pytest.mark.parametrize("name", SCHEMES)
def test_each_row_of_a_batch_may_have_positions_of_its_own(name):
    position = layer(name)
    q, k = queries_and_keys(2)
    q_places = torch.tensor([[0, 0, 1, 2, 3], [9, 10, 11, 12, 13]])
    k_places = torch.tensor([[0, 1, 2, 3, 3, 3, 3], [4, 11, 2, 8, 30, 9, 12]])
    got = everywhere(position.score_term(q, k, q_places, k_places))
    for b in range(B):
        alone = position.score_term(q[b : b + 1], k[b : b + 1], q_places[b], k_places[b])
        torch.testing.assert_close(got[b], alone.expand(1, HEADS, T, S)[0])


@pytest.mark.parametrize("name", SCHEMES)
def test_a_block_of_queries_and_keys_gets_its_part_of_the_whole_term(name):
    position = layer(name)
    q, k = queries_and_keys(2)
    q_places, k_places = torch.arange(T), torch.arange(S)
    whole = everywhere(position.score_term(q, k, q_places, k_places))
    for t in range(T):
        for keys in (slice(0, 3), slice(2, 7)):
            block = position.score_term(
                q[:, :, t : t + 1], k[:, :, keys], q_places[t : t + 1], k_places[keys]
            )
            part = whole[:, :, t : t + 1, keys]
            torch.testing.assert_close(block.expand_as(part), part)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("rows", [(), (B,)])
def test_a_block_without_keys_gets_an_empty_term(name, rows):
    q, k = queries_and_keys()
    places = torch.ones(*rows, T, dtype=torch.long), torch.ones(*rows, 0, dtype=torch.long)
    term = layer(name).score_term(q, k[:, :, :0], *places)
    assert torch.broadcast_shapes(term.shape, (B, HEADS, T, 0)) == (B, HEADS, T, 0)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float32_and_keeps_its_type(name, dtype):
    q, k = queries_and_keys()
    places = torch.arange(T), torch.arange(S)
    exact = layer(name).score_term(q, k, *places)
    rough = layer(name, dtype=dtype).score_term(q.to(dtype), k.to(dtype), *places)
    assert rough.dtype == dtype
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("name", TABLES)
def test_the_gradient_of_a_row_read_thousands_of_times_is_not_rounded_away(name):
    places = torch.arange(600)
    q, k = (torch.rand(1, HEADS, 600, DH).bfloat16() for _ in range(2))
    pull = (1 + torch.rand(1, HEADS, 600, 600)).bfloat16()
    found = []
    for dtype in (torch.bfloat16, torch.float64):
        position = built(name, dtype=dtype).at_layer(1)
        term = position.score_term(q.to(dtype), k.to(dtype), places, places)
        (term * pull.to(dtype)).sum().backward()
        found.append([p.grad for p in position.parameters() if p.grad is not None])
    for rough, exact in zip(*found):
        torch.testing.assert_close(rough.double(), exact, rtol=0.05, atol=0.05 * exact.abs().max())


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_gradients_of_all_parameters_agree_with_finite_differences(name, bidirectional):
    scheme = built(name, bidirectional, dtype=torch.float64)
    q, k = (part.requires_grad_() for part in queries_and_keys(2, torch.float64))
    q_places, k_places = torch.arange(3, 3 + T), torch.arange(S)
    names, values = zip(*scheme.named_parameters())
    values = [value.detach().clone().requires_grad_() for value in values]

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scheme = scheme

        def forward(self, q, k):
            position = self.scheme.at_layer(1)
            term = position.score_term(q, k, q_places, k_places)
            extra = position.value_term(torch.tanh(everywhere(term)), q_places, k_places)
            return (term,) if extra is None else (term, extra)

    def call(q, k, *parameters):
        named = {f"scheme.{key}": value for key, value in zip(names, parameters)}
        return torch.func.functional_call(Block(), named, (q, k))

    assert torch.autograd.gradcheck(call, (q, k, *values), fast_mode=True)


@pytest.mark.parametrize("name", SCHEMES)
def test_it_compiles_whole_and_gives_the_same(name):
    position = layer(name)
    q, k = queries_and_keys(2)
    places = torch.arange(T), torch.arange(S)

    def both(position, q, k, q_places, k_places):
        term = position.score_term(q, k, q_places, k_places)
        return term, position.value_term(term.expand(B, -1, -1, -1), q_places, k_places)

    torch.compiler.reset()
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")(position, q, k, *places)
    for ours, eager in zip(compiled, both(position, q, k, *places)):
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-5)


def test_only_deberta_and_t5_change_the_scale_of_the_scores():
    scales = {name: layer(name).score_scale(DH) for name in SCHEMES}
    assert scales.pop("t5") == 1
    for name, scale in scales.items():
        factor = 3 if name.startswith("deberta") else 1
        assert scale == pytest.approx((factor * DH) ** -0.5), name


def test_a_scheme_of_layers_is_refused_where_a_layer_is_meant():
    for name in ("shaw", "disentangled", "deberta"):
        scheme, (q, k) = built(name), queries_and_keys()
        assert scheme.at_layer(0) is not scheme.at_layer(1)
        assert scheme.hooks == scheme.at_layer(0).hooks
        with pytest.raises(TypeError, match=r"differs between layers; use at_layer\(layer\)$"):
            scheme.score_term(q, k, torch.arange(T), torch.arange(S))


@pytest.mark.parametrize("name", SCHEMES)
def test_a_state_dict_restores_it_and_holds_nothing_twice(name):
    scheme, other = built(name), SCHEMES[name](Stack(DIM, HEADS, 2))
    state = scheme.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    assert state.keys() == dict(scheme.named_parameters()).keys()
    other.load_state_dict(state)
    q, k = queries_and_keys()
    places = torch.arange(T), torch.arange(S)
    expected = scheme.at_layer(1).score_term(q, k, *places)
    assert torch.equal(other.at_layer(1).score_term(q, k, *places), expected)
