"""Mixture of attention experts against brute force, and the loss that keeps experts in use."""

from functools import partial

import pytest
import torch

from seqattn.attention.experts import Balance, MixtureOfAttention, auxiliary_losses
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask, positions_of
from seqattn.errors import UserError
from seqattn.positions import Position, Stack
from seqattn.tokens import PAD
from tests.builders import (
    DIM,
    HEAD_DIM,
    HEADS,
    causal_mask,
    full_mask,
    make_attention,
    make_transformer,
    padded,
    targets,
)
from tests.nodes import made_of_settings

B, T, S, E, MEMORY_DIM = 2, 5, 7, 6, 10
REAL = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.bool)
POSITION = Position(Stack(DIM, HEADS))


def experts(num_heads=HEADS, num_experts=E, kernel=SoftmaxKernel, **options):
    return partial(
        MixtureOfAttention, num_heads=num_heads, num_experts=num_experts, kernel=kernel, **options
    )


def attend(attention, query, memory, mask):
    return attention(query, attention.project(memory), mask, POSITION).output


def brute_force(moa, query, memory, allowed, num_heads=HEADS):
    """A token at a time, an expert at a time."""
    width = moa.key.out_features
    keys, values = moa.key(memory), moa.value(memory)
    queries = moa.query.weight.unflatten(0, (-1, width))
    biases = moa.query.bias.unflatten(0, (-1, width))
    outputs = moa.output.weight.unflatten(1, (-1, width))
    rows = []
    for b in range(query.shape[0]):
        for t in range(query.shape[1]):
            token, seen = query[b, t], allowed[b, t].nonzero()[:, 0]
            exps = (moa.router.weight @ token).exp()
            probabilities = exps / exps.sum()
            chosen = sorted(range(len(exps)), key=lambda e: -float(probabilities[e]))[:num_heads]
            total = sum(probabilities[e] for e in chosen).detach()
            out = moa.output.bias
            for e in chosen if len(seen) else ():
                scores = keys[b, seen] @ (queries[e] @ token + biases[e]) / width**0.5
                context = scores.softmax(dim=0) @ values[b, seen]
                out = out + probabilities[e] / total * (outputs[:, e] @ context)
            rows.append(out)
    return torch.stack(rows).view(*query.shape[:2], -1)


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_brute_force_in_value_and_gradient(num_heads, causal):
    moa = make_attention(experts(num_heads)).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64, requires_grad=True)
    allowed = REAL[:, None, :].expand(B, T, T)
    if causal:
        allowed = allowed & torch.ones(T, T, dtype=torch.bool).tril()
    ours = attend(moa, x, x, causal_mask(REAL) if causal else full_mask(REAL))
    expected = brute_force(moa, x, x, allowed, num_heads)
    torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)
    inputs, upstream = (x, *moa.parameters()), torch.randn_like(ours)
    got = torch.autograd.grad((ours * upstream).sum(), inputs)
    wanted = torch.autograd.grad((expected * upstream).sum(), inputs)
    assert float(got[1].abs().max()) > 1e-3  # the router learns, of one expert too
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=1e-11)


def test_cross_attention_to_a_memory_of_another_width_equals_brute_force():
    moa = make_attention(experts(), memory_dim=MEMORY_DIM).double()
    query = torch.randn(B, T, DIM, dtype=torch.float64)
    memory = torch.randn(B, S, MEMORY_DIM, dtype=torch.float64)
    real = torch.arange(S) < torch.tensor([[S], [4]])
    ours = attend(moa, query, memory, Mask(torch.arange(T), torch.arange(S), real))
    expected = brute_force(moa, query, memory, real[:, None].expand(B, T, S))
    torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)


def test_gates_sum_to_one_over_the_likeliest_experts():
    moa = make_attention(experts())
    x = torch.randn(B, T, DIM)
    routes = moa.route(x)
    torch.testing.assert_close(routes.gates.sum(dim=-1), torch.ones(B, T))
    likeliest = moa.router(x).argsort(dim=-1, descending=True)[..., :HEADS]
    assert torch.equal(routes.chosen, likeliest)
    assert (routes.gates[..., :-1] >= routes.gates[..., 1:]).all()


def test_rounding_to_bfloat16_chooses_the_same_experts():
    moa = make_attention(experts())
    x = torch.randn(B, 200, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        rough = moa.route(x)
    assert torch.equal(rough.chosen, moa.route(x).chosen)
    assert rough.gates.dtype == torch.float32


# --- the loss -----------------------------------------------------------------------------------


def collected(moa, x, mask):
    moa.train()
    with auxiliary_losses(moa) as losses:
        attend(moa, x, x, mask)
    (loss,) = losses
    return loss


def written_out(moa, x, real, load, z):
    """Sums over the real tokens, a token at a time."""
    used, likely, squares = x.new_zeros(E), x.new_zeros(E), x.new_zeros(())
    for token in x[real]:
        logits = moa.router.weight @ token
        exps = logits.exp()
        for e in logits.topk(HEADS).indices.tolist():
            used[e] += 1
        likely = likely + exps / exps.sum()
        squares = squares + exps.sum().log() ** 2
    balance = E * (used / used.sum() * (likely / likely.sum())).sum()
    return load * balance + z * squares / int(real.sum()), balance


@pytest.mark.parametrize(("load", "z"), [(0.01, 0.0), (0.3, 0.2), (0.0, 0.1)])
def test_the_loss_is_the_published_one_over_real_tokens(load, z):
    moa = make_attention(experts(balance=Balance(load, z))).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    got = collected(moa, x, full_mask(REAL))
    wanted, balance = written_out(moa, x, REAL, load, z)
    torch.testing.assert_close(got.loss, wanted)
    torch.testing.assert_close(got.balance, balance.detach())
    assert not got.balance.requires_grad
    (gradient,) = torch.autograd.grad(got.loss, moa.router.weight)
    (expected,) = torch.autograd.grad(wanted, moa.router.weight)
    torch.testing.assert_close(gradient, expected)


def test_the_loss_leaves_out_what_stands_in_padding():
    moa = make_attention(experts(balance=Balance(1.0, 1.0))).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    other = torch.where(REAL[..., None], x, 100 * torch.randn_like(x))
    mask = full_mask(REAL)
    torch.testing.assert_close(collected(moa, x, mask).loss, collected(moa, other, mask).loss)


def test_balance_is_one_where_all_experts_are_alike_and_more_where_some_are_favored():
    moa = make_attention(experts()).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64).abs()
    even, favored = torch.zeros(2, E, DIM, dtype=torch.float64)
    favored[:HEADS] = 10.0
    balances = []
    for weight in (even, favored):
        moa.router.weight.data = weight
        balances.append(float(collected(moa, x, full_mask(REAL)).balance))
    assert balances == pytest.approx([1.0, E / HEADS])


def test_a_batch_of_nothing_but_padding_has_a_finite_loss():
    moa = make_attention(experts(balance=Balance(1.0, 1.0)))
    nothing = torch.zeros(B, T, dtype=torch.bool)
    assert float(collected(moa, torch.randn(B, T, DIM), full_mask(nothing)).loss) == 0


def test_nothing_is_collected_in_evaluation_nor_after_the_block():
    moa = make_attention(experts())
    x, mask = torch.randn(B, T, DIM), full_mask(REAL)
    with auxiliary_losses(moa) as losses:
        attend(moa.eval(), x, x, mask)
    assert losses == []
    with pytest.raises(ZeroDivisionError), auxiliary_losses(moa) as losses:
        raise ZeroDivisionError
    attend(moa.train(), x, x, mask)
    assert losses == []
    with auxiliary_losses(make_transformer().train()) as losses:
        pass
    assert losses == []


SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])
TARGETS = targets(2, 5)
TARGETS[1, 3:] = PAD


def transformer_losses(model, source, target):
    with auxiliary_losses(model.train()) as losses:
        logits = model(source, target)
    return logits, torch.stack([part.loss for part in losses])


def test_every_self_attention_of_a_transformer_has_a_loss_that_no_padding_moves():
    model = make_transformer(experts(), dropout=0.0).double()
    _, losses = transformer_losses(model, SOURCES, TARGETS)
    assert len(losses) == 4
    blank = torch.full((2, 3), PAD)
    for source, target in (
        (torch.cat((blank, SOURCES, blank), dim=1), torch.cat((TARGETS, blank), dim=1)),
        (SOURCES, torch.cat((blank, TARGETS), dim=1)),
    ):
        _, more = transformer_losses(model, source, target)
        torch.testing.assert_close(more, losses)


def test_cross_attention_knows_which_queries_are_padding():
    moa = make_attention(experts(balance=Balance(1.0)), memory_dim=MEMORY_DIM).train().double()
    query = torch.randn(B, T, DIM, dtype=torch.float64)
    memory = torch.randn(B, S, MEMORY_DIM, dtype=torch.float64)
    mask = Mask(torch.arange(T), torch.arange(S), real_queries=REAL)
    with auxiliary_losses(moa) as losses:
        attend(moa, query, memory, mask)
    torch.testing.assert_close(losses[0].loss, written_out(moa, query, REAL, 1.0, 0.0)[0])


def test_recomputed_activations_give_the_same_loss_and_gradient():
    results = []
    for checkpointing in (False, True):
        model = make_transformer(experts(balance=Balance(1.0, 0.5)), dropout=0.3)
        model.encoder.checkpointing = model.decoder.checkpointing = checkpointing
        torch.manual_seed(3)
        logits, losses = transformer_losses(model, SOURCES, TARGETS)
        (logits.square().mean() + losses.sum()).backward()
        gradients = [p.grad for p in model.parameters()]
        assert all(g is not None for g in gradients)
        results.append([losses.detach(), *gradients])
    for plain, recomputed in zip(*results, strict=True):
        assert torch.equal(plain, recomputed)


def test_it_compiles_whole_in_training():
    moa = make_attention(experts()).train().double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    real = torch.ones(B, T, dtype=torch.bool)
    mask = Mask(torch.arange(T), torch.arange(T), causal=True, real_queries=real)
    torch.compiler.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    with auxiliary_losses(moa) as losses:
        torch.testing.assert_close(compiled(moa, x, x, mask), attend(moa, x, x, mask))
    torch.testing.assert_close(losses[0].loss, losses[1].loss)


# --- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_heads": 5}, "num_heads must divide model.dim (24), got 5"),
        (
            {"num_experts": 3},
            "attention.num_experts must be at least attention.num_heads (4), the number of experts "
            "per token, got 3",
        ),
    ],
)
def test_counts_that_do_not_fit_are_refused(options, text):
    with pytest.raises(UserError) as caught:
        made_of_settings(experts(**options))(query_dim=DIM, memory_dim=DIM)
    assert str(caught.value) == text


def test_the_cache_holds_one_head_of_keys_and_values():
    moa = make_attention(experts())
    cache = moa.make_cache(1)
    x = torch.randn(B, 1, DIM)
    places = torch.arange(1)
    moa(x, moa.project(x), Mask(places, positions_of(REAL[:, :1])), POSITION, cache)
    assert cache.nbytes == B * 2 * HEAD_DIM * 4
