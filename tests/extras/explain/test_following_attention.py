"""What holds of every explanation that follows attention."""

import sys

import pytest
import torch

from seqattn.errors import UserError
from seqattn.extras.explain.explanations import METHODS, explain
from seqattn.extras.explain.explanations.passes import run_recurrent
from seqattn.extras.explain.explanations.predictions import decoder_input
from seqattn.installation import install
from tests.builders import (
    HEADS,
    heads,
    load_choice,
    load_variant,
    make_transformer,
    padded,
)
from tests.models.recurrents import SHAPES as SHAPES_OF_RECURRENT
from tests.models.recurrents import label, make_recurrent

FOLLOWING = (
    "attention", "value_norm", "rollout", "flow", "relevance", "alti", "attention_x_gradient",
)  # fmt: skip
OF_ALIGNMENTS = ("attention", "value_norm", "relevance", "attention_x_gradient")
SOURCES = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
TARGETS = [[6, 4, 3], [5, 8, 7, 10, 3]]
RECURRENT = [
    *((name, {}) for name in ("bahdanau", "luong_general", "luong_local_p")),
    *(("luong_general", SHAPES_OF_RECURRENT[shape]) for shape in ("fed", "other order")),
]
CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def rope():
    return load_choice("position", "rope")


def alone(model, source, target, method):
    return explain(model, torch.tensor([source]), torch.tensor([target]), method)


@torch.no_grad()
@pytest.mark.parametrize("kind", RECURRENT, ids=label)
def test_an_alignments_weights_times_annotations_make_up_its_context(kind):
    model = make_recurrent(kind[0], **kind[1])
    source, target = padded(SOURCES), padded(TARGETS)
    aligned = run_recurrent(model, source, target)
    state = model.start(model.encode(source), cached=False)
    output = model.features(decoder_input(target), state, need_weights=True)
    context = output.evidence[..., : aligned.annotations.shape[2]]
    torch.testing.assert_close(aligned.weights @ aligned.annotations, context, **CLOSE)


@pytest.mark.parametrize("name", ["sliding_window", "ring", "gqa"])
@pytest.mark.parametrize("method", FOLLOWING)
def test_a_wide_window_one_rank_and_groups_of_one_give_what_multi_head_attention_does(method, name):
    node = load_choice("attention", name)
    attention = node if name != "gqa" else heads(HEADS, HEADS)
    plain, other = make_transformer(position=rope()), make_transformer(attention, rope())
    other.load_state_dict(plain.state_dict())
    source, target = padded(SOURCES), padded(TARGETS)
    for one, two in zip(
        explain(plain, source, target, method), explain(other, source, target, method)
    ):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("method", ["relevance", "attention_x_gradient"])
def test_gradients_are_taken_where_they_are_switched_off(method):
    model = make_transformer()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert (alone(model, SOURCES[0], TARGETS[0], method).source > 0).any()


@pytest.mark.parametrize("method", FOLLOWING)
@pytest.mark.parametrize("name", ["linformer", "xca", "differential"])
def test_a_slot_without_weights_is_named_by_those_that_need_them(method, name):
    model = make_transformer(load_variant(name))
    reason = METHODS[method].why_not(model)
    if method in OF_ALIGNMENTS and method != "relevance":  # which follows all layers
        assert reason is None
        return
    kernel = type(model.encoder.layers[0].self_attention.kernel).__name__
    words = f"no weights over keys make up the output of encoder.layers.0.self_attention ({kernel})"
    assert reason.startswith(f"{words}, encoder.layers.1.self_attention ({kernel})")
    with pytest.raises(UserError, match=f"method={method} is not available: no weights over keys"):
        alone(model, SOURCES[0], TARGETS[0], method)


@pytest.mark.parametrize("method", FOLLOWING)
def test_a_recurrent_model_says_what_cannot_be_followed(method):
    reason = METHODS[method].why_not(make_recurrent("luong_general"))
    assert (reason is None) == (method in OF_ALIGNMENTS)
    assert reason is None or reason.startswith("the states of a recurrent model mix the tokens")
    assert METHODS[method].why_not(make_recurrent("none")) is not None


def test_flow_says_that_it_needs_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    model = make_transformer(heads(4, 2))
    with pytest.raises(UserError) as refused:
        alone(model, SOURCES[0], TARGETS[0], "flow")
    needs = f"it needs scipy ({install('explain')})"
    assert str(refused.value) == f"method=flow is not available: {needs}"
