"""Edited weights and gated heads, in whole passes and in decoding."""

from dataclasses import replace

import pytest
import torch

from seqattn.analysis import capture, intervene
from seqattn.analysis.intervene import (
    attention_groups,
    permuted,
    uniform,
    without_heads,
    without_keys,
)
from seqattn.attention.base import Attention
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from tests.builders import (
    HEADS,
    abilities_of,
    attention_variants,
    load_choice,
    load_variant,
    make_transformer,
    one_scheme,
    padded,
    targets,
)
from tests.models.recurrents import MODELS, label, make_recurrent

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])
TARGETS = targets(2, 5)
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def model_of(name):
    return make_transformer(load_variant(name), load_choice("position", one_scheme(name)))


def same(weights, visible):
    return weights


def stepwise(model):
    """Logits of a cached decode: two tokens, then one at a time."""
    state = model.start(model.encode(SOURCES))
    pieces = [TARGETS[:, :2], *TARGETS[:, 2:].split(1, dim=1)]
    return torch.cat([model.decode(piece, state) for piece in pieces], dim=1)


def checked_rows(weights, visible):
    """An edit that flattens rows a little, and holds what it is told to what it is given."""
    allowed = torch.ones_like(weights) if visible is None else visible.expand_as(weights)
    assert not weights[allowed == 0].any()
    return weights * 0.5 + uniform(weights, visible) * 0.5


@torch.no_grad()
@pytest.mark.parametrize("name", [n for n in attention_variants() if abilities_of(n).weights])
def test_weights_given_back_unchanged_change_nothing_and_edits_act_in_decoding_as_in_a_pass(name):
    model = model_of(name)
    plain = model(SOURCES, TARGETS)
    with intervene(model, {"*": same}):
        torch.testing.assert_close(model(SOURCES, TARGETS), plain, **CLOSE)
        torch.testing.assert_close(stepwise(model), plain, **CLOSE)
    with intervene(model, {"*": checked_rows}):
        edited = model(SOURCES, TARGETS)
        torch.testing.assert_close(stepwise(model), edited, **CLOSE)
    assert (edited - plain).abs().max() > 1e-3
    assert torch.equal(model(SOURCES, TARGETS), plain)


@torch.no_grad()
@pytest.mark.parametrize("name", attention_variants())
def test_a_gate_of_zero_takes_a_head_out_and_one_of_one_changes_nothing(name):
    model = model_of(name)
    plain = model(SOURCES, TARGETS)
    attentions = {n: m for n, m in model.named_modules() if isinstance(m, Attention)}
    ones = {n: torch.ones(attention.gated_heads) for n, attention in attentions.items()}
    with intervene(model, gates=ones):
        assert torch.equal(model(SOURCES, TARGETS), plain)
    place = "encoder.layers.0.self_attention"
    factors = torch.ones(attentions[place].gated_heads)
    factors[1] = 0
    with intervene(model, gates={place: factors}):
        gated = model(SOURCES, TARGETS)
    assert (gated - plain).abs().max() > 1e-4
    summed = "accounts" not in attentions[place].exceptions  # else heads share a norm
    routed = "moa" in name  # to experts
    if abilities_of(name).weights and summed and not routed:
        with intervene(model, {place: without_heads(1)}):
            torch.testing.assert_close(model(SOURCES, TARGETS), gated, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["mha", "moa"])
def test_heads_that_are_out_do_not_say_where_the_decoder_looked(name):
    model = make_transformer(cross=load_variant(name), layers=(1, 1), copy=True)
    place = "decoder.layers.0.cross_attention"
    cross = model.get_submodule(place)
    routes = []
    if name == "moa":
        cross.register_forward_pre_hook(lambda _, args: routes.append(cross.route(args[0])))

    def looked(gates):
        state = model.start(model.encode(SOURCES), cached=False)
        with capture(model) as maps, intervene(model, gates={place: gates}):
            found = model.features(TARGETS, state, need_weights=True).weights
            total = (
                model.log_probabilities(TARGETS, model.start(model.encode(SOURCES), cached=False))
                .log_probabilities.exp()
                .sum(dim=-1)
            )
        torch.testing.assert_close(total, torch.ones_like(total), **CLOSE)
        return found, maps[place][0]

    gates = torch.ones(cross.gated_heads)
    gates[1] = 0
    found, weights = looked(gates)
    shares = gates[None, None].expand(*TARGETS.shape, -1)
    if name == "moa":
        shares = routes[0].gates * gates[routes[0].chosen]
    shares = (shares / shares.sum(dim=-1, keepdim=True)).transpose(1, 2)[..., None]
    torch.testing.assert_close(found, (weights * shares).sum(dim=1), **CLOSE)
    assert not looked(torch.zeros_like(gates))[0].any()


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind[0] != "none"], ids=label)
def test_recurrent_models_take_edits_in_a_pass_and_in_decoding(kind):
    model = make_recurrent(kind[0], **kind[1])
    if "gradients" in model.decoder.cross_attention.exceptions:
        model.decoder.cross_attention.energy.offset.fill_(0.5)  # else it chooses nothing
    plain = model(SOURCES, TARGETS)
    with intervene(model, {"*": same}):
        torch.testing.assert_close(model(SOURCES, TARGETS), plain, **CLOSE)
    with intervene(model, {"*": checked_rows}):
        edited = model(SOURCES, TARGETS)
        torch.testing.assert_close(stepwise(model), edited, **CLOSE)
    assert (edited - plain).abs().max() > 1e-4


def test_gradients_reach_gates():
    model = make_transformer()
    gates = torch.ones(HEADS, requires_grad=True)
    with intervene(model, gates={"decoder.layers.1.cross_attention": gates}):
        model(SOURCES, TARGETS).square().sum().backward()
    assert (gates.grad != 0).all()


@torch.no_grad()
def test_capture_shows_what_an_edit_gave():
    model = make_transformer()
    name = "decoder.layers.0.cross_attention"
    with intervene(model, {name: uniform}), capture(model) as maps:
        model(SOURCES, TARGETS)
    wanted = torch.tensor([[1 / 7] * 7, [1 / 3] * 3 + [0.0] * 4])
    torch.testing.assert_close(maps[name][0], wanted[:, None, None].expand(2, HEADS, 5, 7))


@torch.no_grad()
def test_permuted_weights_are_the_same_numbers_on_the_keys_that_a_query_sees():
    model, name = make_transformer(), "decoder.layers.0.self_attention"
    with capture(model) as plain:
        model(SOURCES, TARGETS)
    with intervene(model, {name: permuted(3)}), capture(model) as maps:
        model(SOURCES, TARGETS)
    before, after = plain[name][0], maps[name][0]
    assert not torch.equal(before, after)
    torch.testing.assert_close(before.sort(dim=-1)[0], after.sort(dim=-1)[0])
    assert (after[:, :, torch.ones(5, 5).triu(1).bool()] == 0).all()


@torch.no_grad()
def test_a_key_that_is_taken_out_of_every_slot_of_one_layer_is_one_whose_value_is_zero():
    model, name = make_transformer(layers=(1, 1)), "decoder.layers.0.cross_attention"
    with intervene(model, {name: without_keys(2)}):
        cut = model(SOURCES, TARGETS)
    state = model.start(model.encode(SOURCES), cached=False)
    state.source[0].values[:, :, 2] = 0
    torch.testing.assert_close(model.decode(TARGETS, state), cut, **CLOSE)


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_searches_follow_an_edit_with_workers_and_without(search):
    model = make_transformer()
    sources = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
    limit = LengthLimit(1.0, 3)

    def found(workers):
        return Generator(
            model, replace(search(limit=limit), batch_size=1, workers=workers)
        ).generate(sources)

    plain = found(1)
    with intervene(model, {"*cross_attention": uniform}, {"encoder.*": [0.0, 1.0, 1.0, 1.0]}):
        assert found(1) == found(2) != plain
    assert found(1) == plain


def test_blocks_within_blocks_act_together_and_end_apart():
    model, name = make_transformer(), "encoder.layers.0.self_attention"
    attention = model.get_submodule(name)
    with intervene(model, {name: without_heads(0)}, {name: [1.0, 0.0, 1.0, 1.0]}):
        outer = attention.kernel.edits
        with intervene(model, {name: without_heads(2)}, {name: [1.0, 1.0, 1.0, 0.5]}):
            used = attention.kernel.edit_and_show(torch.ones(1, 4, 1, 1), lambda: None)
            assert used.flatten().tolist() == [0, 1, 0, 1]
            assert attention.gates.tolist() == [1.0, 0.0, 1.0, 0.5]
        assert attention.kernel.edits is outer
        assert attention.gates.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert attention.kernel.edits == ()
    assert attention.gates is None


def test_gates_of_two_patterns_that_fit_one_attention_are_multiplied():
    model, name = make_transformer(), "encoder.layers.0.self_attention"
    gates = {"encoder.*": [1.0, 0.5, 1.0, 2.0], name: [0.0, 0.5, 1.0, 1.0]}
    with intervene(model, gates=gates):
        assert model.get_submodule(name).gates.tolist() == [0.0, 0.25, 1.0, 2.0]
        other = model.get_submodule("encoder.layers.1.self_attention")
        assert other.gates.tolist() == gates["encoder.*"]


def test_names_that_fit_nothing_and_impossible_edits_are_refused():
    model = model_of("linformer")
    told = (
        ({"weights": {"decoder.layers.9.*": same}}, r"unknown attention decoder\.layers\.9"),
        (
            {"weights": {"encoder.layers.0.self_attention": same}},
            "has no attention weights to edit",
        ),
        ({"gates": {"decoder.*": [1.0, 0.0]}}, f"has {HEADS} heads, got gates for 2"),
    )
    for asked, words in told:
        with pytest.raises(UserError, match=words), intervene(model, **asked):
            pass


def test_layers_slots_and_all_of_them():
    found = attention_groups(make_transformer(layers=(1, 2)))
    cross = [f"decoder.layers.{n}.cross_attention" for n in (0, 1)]
    own = [f"decoder.layers.{n}.self_attention" for n in (0, 1)]
    encoder = ["encoder.layers.0.self_attention"]
    assert found.groups == {
        "all": [*encoder, *own, *cross], "encoder": encoder, "decoder": own, "cross": cross,
        "decoder 1": own[:1], "decoder 2": own[1:], "cross 1": cross[:1], "cross 2": cross[1:],
    }  # fmt: skip
    assert found.without == []


def test_a_recurrent_model_has_one():
    assert attention_groups(make_recurrent("bahdanau")).groups == {
        "all": ["decoder.cross_attention"]
    }


def test_what_has_no_weights_is_left_as_it_is():
    model = make_transformer(load_variant("xca"), layers=(2, 1))
    found = attention_groups(model)
    assert found.without == [f"encoder.layers.{n}.self_attention" for n in (0, 1)]
    assert set(found.groups) == {"all", "decoder", "cross"}


def test_a_model_without_weights_is_refused():
    with pytest.raises(UserError, match="this model has no attention weights"):
        attention_groups(make_recurrent("none"))


def test_a_key_below_0_is_refused():
    with pytest.raises(UserError, match="keys must be 0 or above"):
        without_keys(2, -1)
