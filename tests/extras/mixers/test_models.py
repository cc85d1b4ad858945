"""Whole models of mixers: what models of every attention must do, and what mixers add."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from seqattn.analysis import capture
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from seqattn.positions import Position, RotaryPosition, SinusoidalPosition
from seqattn.settings.assembly import Architecture
from seqattn.settings.choices import choices
from seqattn.tokens import EOS
from tests.absent import of_extra
from tests.builders import make_transformer, random_ids
from tests.extras.mixers.choices import NAMES, factory
from tests.graphs import same_outputs
from tests.models.test_cache_equivalence import (  # noqa: F401
    test_beams_that_are_reordered_and_sentences_that_leave_equal_full_passes,
    test_ragged_prefixes_padded_on_either_side_go_on_as_each_would_alone,
    test_tokens_in_pieces_give_the_logits_of_one_full_pass,
)
from tests.models.test_learning import TASKS, by_heart, learned_by_heart, solved, tiny
from tests.models.test_padding import (  # noqa: F401
    test_a_source_of_nothing_but_padding_gives_finite_logits_and_gradients,
    test_logits_depend_on_neither_padding_nor_neighbors,
    test_logits_do_not_depend_on_later_target_tokens,
)


@pytest.fixture(params=NAMES)
def model(request):
    return make_transformer(factory(request.param, chunk=3), SinusoidalPosition)


def architecture(attention, position=None, **slots):
    """A small Transformer of choices by name, checked."""
    nodes = {slot: choices("attention")[name] for slot, name in slots.items()}
    several = [choices("attention")[name] for name in attention.split(",")]
    chosen = {
        "model": choices("model")["transformer"] | {"dim": 16, "ffn_dim": 16},
        "attention": several if len(several) > 1 else several[0],
        "position": choices("position")[position or "none"] | {"_partial_": True},
        "choices": {"attention": attention, "position": position},
    }
    return Architecture.of(chosen | nodes).check()


@pytest.mark.parametrize("name", NAMES)
def test_beam_and_greedy_search_give_the_same_alone_and_in_a_batch(name):
    model = make_transformer(factory(name), SinusoidalPosition)
    for search in (GreedySearch(LengthLimit(1.0, 3)), BeamSearch(LengthLimit(1.0, 3), 3)):
        texts = [[4, 5, EOS], [6, 7, 8, 9, EOS]]
        together = Generator(model, search).generate(texts)
        alone = Generator(model, replace(search, batch_size=1)).generate(texts)
        assert [[h.ids for h in found] for found in together] == [
            [h.ids for h in found] for found in alone
        ]


@pytest.mark.parametrize("name", NAMES)
def test_captured_steps_give_the_same(name):
    model = make_transformer(factory(name), SinusoidalPosition).eval()
    search = partial(BeamSearch, LengthLimit(1.0, 5), 3)
    assert same_outputs(model, search, [[4, 5, EOS], [6, 7, 8, 9, EOS], [EOS], [9, 5, 5, EOS]])


@pytest.mark.parametrize("name", by_heart(NAMES, {"ssru"}))
def test_a_tiny_model_learns_a_few_sentences_by_heart(name):
    assert learned_by_heart(tiny(factory(name))) > 0.95


@pytest.mark.parametrize(
    ("name", "task"),
    [pytest.param(n, task, marks=pytest.mark.exhaustive) for n in NAMES for task in TASKS],
)
def test_a_tiny_model_learns_the_task_and_greedy_search_solves_unseen_sentences(name, task):
    assert solved(tiny(factory(name)), TASKS[task]) >= 0.95


@pytest.mark.parametrize("name", NAMES)
def test_cross_attention_has_its_number_of_heads_and_no_other_key_of_its(name):
    model = architecture(name)
    cross = model.decoder.layers[0].cross_attention
    assert (cross.name, cross.num_heads, cross.num_kv_heads) == ("SoftmaxKernel", 4, 4)
    assert cross.head_dim == 4
    assert cross.query.bias is not None


@pytest.mark.parametrize("name", NAMES)
def test_positions_act_on_the_attentions_of_a_stack_and_need_one(name):
    model = architecture(f"{name},mha", "rope")
    assert type(model.encoder.position) is RotaryPosition
    line = f"^attention={name} does not support position=rope; choose from learned, none, sin"
    with pytest.raises(UserError, match=line):
        architecture(name, "rope")
    with pytest.raises(UserError, match=r"^attention=xca does not support position=rope; choose"):
        architecture(f"{name},xca", "rope", decoder_attention="mha")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("position", ["rope", "shaw", "alibi", "t5", "deberta", "disentangled"])
def test_positions_act_on_the_stack_that_attends_beside_one_of_mixers(name, position):
    for slot, other in (("encoder", "decoder"), ("decoder", "encoder")):
        model = architecture("mha", position, **{f"{slot}_attention": name})
        assert type(getattr(model, slot).position) is Position
        assert getattr(model, other).position.hooks
        assert not any(f"{slot}.position" in name for name, _ in model.named_parameters())
    with pytest.raises(UserError, match=f"^attention={name} does not support position={position};"):
        architecture(f"{name},{name}", position)


@pytest.mark.parametrize("name", NAMES)
def test_capturing_says_that_a_mixer_has_no_weights_and_shows_the_others(name):
    model = architecture(f"{name},mha").to_empty(device="cpu")
    with torch.no_grad(), capture(model) as maps:
        for parameter in model.parameters():
            parameter.normal_()
        model(random_ids(2, 5).clamp(max=7), random_ids(2, 4).clamp(max=7))
    assert maps["encoder.layers.1.self_attention"][0].shape == (2, 4, 5, 5)
    with pytest.raises(UserError, match=r"^encoder.layers.0.self_attention has no attention weigh"):
        maps["encoder.layers.0.self_attention"]


@pytest.mark.parametrize("name", NAMES)
def test_the_cross_attention_beside_it_can_be_written_out_as_pruning_does(name):
    node = choices("attention")[name] | {"num_heads": 2}
    cross_node = of_extra("explain.pruning").cross_node
    assert cross_node(node) == choices("attention")["mha"] | {"num_heads": 2, "num_kv_heads": 2}
