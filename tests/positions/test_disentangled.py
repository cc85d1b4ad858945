"""Disentangled attention, scalar and DeBERTa's, against loops and against transformers."""

import copy
from types import SimpleNamespace

import pytest
import torch

from seqattn.positions import DeBERTaPosition, DisentangledPosition, Stack
from tests.builders import (
    DIM,
    HEADS,
    full_mask,
    heads,
    make_attention,
    make_transformer,
    padded,
    randomised,
    targets,
)
from tests.tolerance import close

B, T, S, DH, K = 2, 5, 7, 6, 3
Q_PLACES, K_PLACES = torch.tensor([4, 5, 6, 7, 8]), torch.arange(S)


def queries_and_keys(num_kv_heads=HEADS):
    q = torch.randn(B, HEADS, T, DH, dtype=torch.float64)
    return q, torch.randn(B, num_kv_heads, S, DH, dtype=torch.float64)


def scalar():
    torch.manual_seed(0)
    return randomised(DisentangledPosition(Stack(DIM, HEADS, 2), max_distance=K)).double()


def deberta(reach=K, **options):
    torch.manual_seed(0)
    stack = Stack(DIM, HEADS, 2)
    scheme = DeBERTaPosition(stack, max_relative_positions=reach, **options)
    return randomised(scheme).double()


def test_the_scalar_term_is_alpha_times_a_number_per_clipped_distance():
    position = scalar().at_layer(1)
    got = position.score_term(*queries_and_keys(2), Q_PLACES, K_PLACES)
    assert got.shape == (1, HEADS, T, S)
    for h in range(HEADS):
        for t, i in enumerate(Q_PLACES.tolist()):
            for j in range(S):
                row = max(-K, min(K, i - j)) + K
                expected = position.alpha[h] * position.table[row]
                torch.testing.assert_close(got[0, h, t, j], expected)


def test_a_fresh_scalar_scheme_trains_both_of_its_factors():
    position = DisentangledPosition(Stack(DIM, HEADS)).at_layer(0)
    attention = make_attention()
    x = torch.randn(B, T, DIM)
    mask = full_mask(torch.ones(B, T, dtype=torch.bool))
    attention(x, attention.project(x), mask, position).output.square().sum().backward()
    assert (position.alpha.grad != 0).all()
    assert (position.table.grad != 0).sum() == 2 * T - 1


def delta(i, j, reach):
    """Equation 3 of DeBERTa."""
    if i - j <= -reach:
        return 0
    return 2 * reach - 1 if i - j >= reach else i - j + reach


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("reach", [1, 3, 40])
@pytest.mark.parametrize("released", [False, True])
def test_debertas_term_equals_equation_4_pair_by_pair(num_kv_heads, reach, released):
    scheme = deberta(reach, released=released)
    position, (q, k) = scheme.at_layer(1), queries_and_keys(num_kv_heads)
    got = position.score_term(q, k, Q_PLACES, K_PLACES)
    key = (scheme.table @ position.key.weight.T).unflatten(1, (HEADS, DH))
    query = (scheme.table @ position.query.weight.T + position.query.bias).unflatten(1, (HEADS, DH))
    for h in range(HEADS):
        for t, i in enumerate(Q_PLACES.tolist()):
            for j in range(S):
                back = delta(i, j, reach) if released else delta(j, i, reach)
                shared = k[:, h * num_kv_heads // HEADS, j]
                expected = q[:, h, t] @ key[delta(i, j, reach), h] + shared @ query[back, h]
                torch.testing.assert_close(got[:, h, t, j], expected / (3 * DH) ** 0.5)


@pytest.mark.parametrize("places", [[9], [9, 9, 9, 9, 9], [5, 6, 7, 8, 9], [[9], [4]]])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("released", [False, True])
def test_a_prepared_scheme_gives_the_same_wherever_queries_stand(released, num_kv_heads, places):
    position = deberta(released=released).at_layer(1)
    q, k = queries_and_keys(num_kv_heads)
    places = torch.tensor(places)
    q = q[:, :, : places.shape[-1]]
    got = position.prepared().score_term(q, k, places, K_PLACES)
    torch.testing.assert_close(got, position.score_term(q, k, places, K_PLACES))


@torch.no_grad()
def test_decoding_projects_the_vectors_once_and_the_next_one_sees_new_weights():
    model = make_transformer(heads(HEADS), lambda stack: DeBERTaPosition(stack, 20)).eval()
    part, projected = model.decoder.position.at_layer(0), []
    part.query.register_forward_hook(lambda _, args, out: projected.append(len(out)))
    source, target = padded([[4, 5, 3], [6, 3]]), targets(B, T)

    def decoded():
        state = model.start(model.encode(source))
        return torch.cat([model.decode(token, state) for token in target.split(1, dim=1)], dim=1)

    decoded()
    assert projected == [40]
    part.query.bias.add_(1.0)
    close(decoded(), model(source, target))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(source, target), model(source, target))


@pytest.mark.parametrize("places", [torch.tensor([30]), torch.tensor([[3], [30]])])
def test_a_long_table_read_by_a_small_block_trains_only_the_rows_it_reached(places):
    scheme = deberta(20)
    q, k = queries_and_keys()
    term = scheme.at_layer(0).score_term(q[:, :, :1], k[:, :, :3], places, torch.tensor([4, 28, 5]))
    term.square().sum().backward()
    reached = set()
    for i in places.flatten().tolist():
        for j in (4, 28, 5):
            reached |= {delta(i, j, 20), delta(j, i, 20)}
    trained = scheme.table.grad.abs().amax(dim=1) > 0
    assert set(trained.nonzero()[:, 0].tolist()) == reached


def test_attention_with_debertas_positions_equals_that_of_transformers():
    theirs = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    config = SimpleNamespace(
        hidden_size=DIM, num_attention_heads=HEADS, relative_attention=True, position_buckets=-1,
        max_relative_positions=K, pos_att_type=["c2p", "p2c"], hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, share_att_key=False,
    )  # fmt: skip
    block = theirs.DisentangledSelfAttention(config).double().eval()
    attention, scheme = make_attention(heads(HEADS)).double(), deberta(released=True)
    part, n = scheme.at_layer(0), 9
    pairs = (
        (block.query_proj, attention.query), (block.key_proj, attention.key),
        (block.value_proj, attention.value), (block.pos_query_proj, part.query),
    )  # fmt: skip
    for target, source in pairs:
        target.load_state_dict(source.state_dict())
    with torch.no_grad():
        block.pos_key_proj.weight.copy_(part.key.weight)
        block.pos_key_proj.bias.normal_()  # cancels in the softmax, so that we have none
    attention.output = torch.nn.Identity()
    x = torch.randn(B, n, DIM, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[1] * n, [1] * (n - 2) + [0] * 2], dtype=torch.bool)
    expected, _ = block(x, real[:, None, None], rel_embeddings=scheme.table)
    got = attention(x, attention.project(x), full_mask(real), part).output
    torch.testing.assert_close(got[real], expected[real])
    pull = torch.randn_like(got[real])
    inputs = (x, scheme.table)
    ours = torch.autograd.grad(got[real], (*inputs, part.query.weight), pull)
    same = torch.autograd.grad(expected[real], (*inputs, block.pos_query_proj.weight), pull)
    for one, other in zip(ours, same):
        torch.testing.assert_close(one, other)


def test_layers_share_the_vectors_and_project_them_each_for_itself():
    scheme = deberta()
    q, k = queries_and_keys()
    first, second = (
        scheme.at_layer(number).score_term(q, k, Q_PLACES, K_PLACES) for number in (0, 1)
    )
    assert not torch.allclose(first, second)
    names = [name for name, _ in scheme.named_parameters()]
    assert names.count("table") == 1
    assert not [name for name in names if name.startswith("parts") and "table" in name]


def test_a_copy_of_the_scheme_reads_its_own_vectors():

    scheme = deberta()
    twin = copy.deepcopy(scheme)
    with torch.no_grad():
        scheme.table.zero_()
    q, k = queries_and_keys()
    kept = twin.at_layer(0).score_term(q, k, Q_PLACES, K_PLACES)
    assert not torch.allclose(kept, scheme.at_layer(0).score_term(q, k, Q_PLACES, K_PLACES))
