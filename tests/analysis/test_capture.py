"""Weights are observed, not returned."""

import math
from contextlib import ExitStack

import pytest
import torch

from seqattn.analysis import capture
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, generator
from tests.builders import HEAD_DIM, HEADS, POSITIONS, heads, make_transformer, padded, targets

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])
TARGETS = targets(2, 5)
NAMES = {
    f"{stack}.layers.{layer}.{slot}"
    for stack, slot in (
        ("encoder", "self_attention"),
        ("decoder", "self_attention"),
        ("decoder", "cross_attention"),
    )
    for layer in (0, 1)
}


def model_of(kv_heads=2, position="none"):
    return make_transformer(heads(HEADS, kv_heads), POSITIONS[position])


def kernels(model):
    return [module for module in model.modules() if isinstance(module, SoftmaxKernel)]


def written_out(attention, query, memory, allowed):
    """softmax(Q K^T / sqrt(Dh)) a head at a time, 0 where a query may not look."""
    maps = []
    group = attention.num_heads // attention.num_kv_heads
    q, k = attention.query(query), attention.key(memory)
    for head in range(attention.num_heads):
        mine = q[..., head * HEAD_DIM : (head + 1) * HEAD_DIM]
        first = head // group * HEAD_DIM
        scores = mine @ k[..., first : first + HEAD_DIM].transpose(1, 2) / math.sqrt(HEAD_DIM)
        exps = scores.exp() * allowed
        maps.append(exps / exps.sum(-1, keepdim=True))
    return torch.stack(maps, dim=1)


def inputs_of(module, call):
    """What each attention below `module` is called with: its queries, and its memory."""
    seen = {}
    with ExitStack() as stack:
        for name in NAMES:

            def keep(owner, args, name=name):
                seen[name] = args[0]

            stack.enter_context(module.get_submodule(name).register_forward_pre_hook(keep))
        call()
    return seen


@pytest.mark.parametrize("position", POSITIONS)
def test_capturing_changes_no_bit_of_the_output_or_the_gradient(position):
    model = model_of(position=position)
    parameters = list(model.parameters())
    plain = model(SOURCES, TARGETS)
    before = torch.autograd.grad(plain.square().sum(), parameters, allow_unused=True)
    with capture(model) as maps:
        observed = model(SOURCES, TARGETS)
        after = torch.autograd.grad(observed.square().sum(), parameters, allow_unused=True)
    assert torch.equal(plain, observed)
    assert set(maps) == NAMES
    for one, other in zip(before, after, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_weights_of_every_slot_are_the_written_out_softmax(kv_heads):
    model = model_of(kv_heads)
    with torch.no_grad(), capture(model) as maps:
        memory = model.encode(SOURCES)
        seen = inputs_of(model, lambda: model(SOURCES, TARGETS))
        model(SOURCES, TARGETS)
    real = (SOURCES != 0)[:, None, :]
    causal = torch.ones(5, 5).tril().bool()[None]
    for name in NAMES:
        attention = model.get_submodule(name)
        query = seen[name]
        beside = memory.outputs if name.endswith("cross_attention") else query
        allowed = causal if name == f"decoder.{name[8:]}" and "self" in name else real
        wanted = written_out(attention, query, beside, allowed)
        torch.testing.assert_close(maps[name][-1], wanted, atol=1e-5, rtol=1e-5)
        assert (
            maps[name][-1][~allowed.expand(2, *wanted.shape[2:])[:, None].expand_as(wanted)] == 0
        ).all()


@pytest.mark.parametrize("workers", [None, 2])
def test_generation_that_could_have_workers_is_observed_in_this_process(workers, monkeypatch):
    monkeypatch.setattr(generator, "usual_workers", lambda: 2)
    model = model_of()
    search = Generator(model, GreedySearch(LengthLimit(0, 2), batch_size=1, workers=workers))
    with search.open() as opened, capture(model) as maps:
        opened.generate([[4, 5, 3], [6, 3]])
    assert {len(maps[name]) for name in NAMES if name.startswith("encoder")} == {2}


def test_blocks_within_blocks_observe_together():
    model = model_of()
    with torch.no_grad(), capture(model) as outer:
        with capture(model) as inner:
            model(SOURCES, TARGETS)
        model(SOURCES, TARGETS)
    for name in NAMES:
        assert (len(outer[name]), len(inner[name])) == (2, 1)
        assert torch.equal(outer[name][0], inner[name][0])


def test_every_call_is_kept_in_order():
    model = model_of()
    with torch.no_grad(), capture(model) as maps:
        model(SOURCES, TARGETS)
        model(SOURCES[1:, :3], TARGETS[1:])
    with torch.no_grad(), capture(model) as second:
        model(SOURCES[1:, :3], TARGETS[1:])
    for name in NAMES:
        assert [len(call) for call in maps[name]] == [2, 1]
        assert torch.equal(maps[name][1], second[name][0])


def test_a_loss_can_be_derived_with_respect_to_the_weights():
    model = model_of()
    plain = model(SOURCES, TARGETS)
    with capture(model, gradients=True) as maps:
        logits = model(SOURCES, TARGETS)
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=1e-5)
    loss = logits.log_softmax(-1)[..., 4].sum()
    weights = [maps[name][0] for name in sorted(NAMES)]
    gradients = torch.autograd.grad(loss, weights)
    assert all((gradient != 0).any() for gradient in gradients)


def test_the_gradient_at_the_weights_is_that_of_finite_differences():
    """The last layer's cross-attention: its context is linear in its weights."""
    model = model_of().double()
    name, nudge = "decoder.layers.1.cross_attention", 1e-6

    def loss():
        return model(SOURCES, TARGETS).log_softmax(-1)[..., 4].sum()

    with capture(model, gradients=True) as maps:
        (gradient,) = torch.autograd.grad(loss(), maps[name][0])
    kernel = model.get_submodule(name).kernel
    true_weights = kernel.weights
    place = (1, 2, 3, 1)
    values = []
    for sign in (1, -1):

        def nudged(*args, sign=sign):
            weights = true_weights(*args).clone()
            weights[place] += sign * nudge
            return weights

        kernel.weights = nudged
        with torch.no_grad(), capture(model, gradients=True):
            values.append(float(loss()))
    assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / (2 * nudge), rel=1e-5)


@pytest.mark.parametrize("gradients", [False, True])
def test_nothing_observes_after_the_block_even_where_it_raised(gradients):
    model = model_of()
    context = capture(model, gradients)
    maps = context.__enter__()
    assert all(kernel.observers for kernel in kernels(model))
    assert context.__exit__(ZeroDivisionError, ZeroDivisionError(), None) is False
    assert not any(kernel.observers or kernel.edits for kernel in kernels(model))
    model(SOURCES, TARGETS)
    assert all(maps[name] == [] for name in NAMES)


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_generation_gives_the_same_hypotheses_while_it_is_observed(search):
    model = model_of(position="rope")
    generator = Generator(model, search(limit=LengthLimit(1.0, 3)))
    sources = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
    plain = generator.generate(sources)
    with capture(model) as maps:
        assert generator.generate(sources) == plain
    steps = len(maps["decoder.layers.0.cross_attention"])
    assert steps == len(maps["decoder.layers.1.self_attention"]) > 1
    assert len(maps["encoder.layers.0.self_attention"]) == 1


def test_weights_of_token_by_token_decoding_are_the_rows_of_the_whole_pass():
    model = model_of(position="rope")
    with torch.no_grad():
        with capture(model) as whole:
            model(SOURCES, TARGETS)
        with capture(model) as steps:
            state = model.start(model.encode(SOURCES))
            for step in range(5):
                model.decode(TARGETS[:, step : step + 1], state)
    for slot in ("cross_attention", "self_attention"):
        name = f"decoder.layers.1.{slot}"
        for step, found in enumerate(steps[name]):
            row = whole[name][0][:, :, step : step + 1, : found.shape[-1]]
            torch.testing.assert_close(found, row, atol=1e-5, rtol=1e-4)


def test_a_mechanism_without_weights_says_so_and_gives_no_zeros():
    class Mixing(SoftmaxKernel):
        from dataclasses import replace

        abilities = replace(SoftmaxKernel.abilities, weights=False)

    model = make_transformer()
    model.encoder.layers[1].self_attention.kernel = Mixing(HeadShape(HEADS, HEADS, HEAD_DIM))
    name = "encoder.layers.1.self_attention"
    with capture(model) as maps:
        model(SOURCES, TARGETS)
    assert set(maps) == NAMES - {name}
    assert maps.without == [name]
    with pytest.raises(UserError) as caught:
        maps[name]
    assert str(caught.value) == (f"{name} has no attention weights; its mechanism computes none")
    with pytest.raises(KeyError):
        maps["encoder.layers.7.self_attention"]
