"""What holds of every explanation that follows attention."""

import pytest
import torch

from seqattn.analysis.explanations import METHODS, explain
from seqattn.analysis.explanations.passes import decoder_input, run_recurrent
from seqattn.errors import UserError
from tests.analysis.copying_model import PI, copied, copying_model
from tests.builders import (
    HEADS,
    heads,
    load_choice,
    load_variant,
    make_transformer,
    padded,
    random_ids,
    randomised,
)
from tests.models.recurrents import SHAPES as SHAPES_OF_RECURRENT
from tests.models.recurrents import label, make_recurrent

FOLLOWING = ("attention", "value_norm", "rollout", "flow", "relevance", "alti")
LAYERED = ("rollout", "flow", "alti")
OF_ALIGNMENTS = ("attention", "value_norm", "relevance")
SOURCES = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
TARGETS = [[6, 4, 3], [5, 8, 7, 10, 3]]
RECURRENT = [
    *((name, {}) for name in ("bahdanau", "luong_general", "luong_local_p")),
    *(("luong_general", SHAPES_OF_RECURRENT[shape]) for shape in ("fed", "other order")),
]
CLOSE = {"atol": 1e-5, "rtol": 1e-4}
SHAPES = {
    "mha": {},
    "post-norm": {"pre_norm": False},
    "rmsnorm": {"norm": "rmsnorm", "encoder_dim": 12, "share_embeddings": "target"},
    "copying": {"copy": True},
}


def rope():
    return load_choice("position", "rope")


def by_shape():
    """Each shape with each method; the flow, which takes longest, of the first alone."""
    return [(shape, m) for shape in SHAPES for m in FOLLOWING if shape == "mha" or m != "flow"]


def alone(model, source, target, method):
    return explain(model, torch.tensor([source]), torch.tensor([target]), method)


def checked_against_padding(model, method):
    """Holds a batch, padded on either side, to each sentence alone, and rows to a sum of 1."""
    expected_rows = [alone(model, *pair, method) for pair in zip(SOURCES, TARGETS)]
    for left in (False, True):
        source, target = padded(SOURCES, left), padded(TARGETS)
        batch = explain(model, source, target, method)
        whole = batch.source.sum(dim=2) + batch.prefix.sum(dim=2) + batch.rest
        torch.testing.assert_close(whole, (target != 0).float(), **CLOSE)
        assert (batch.source.transpose(1, 2)[source == 0] == 0).all()
        assert (batch.prefix.triu(1) == 0).all()
        assert all((part >= 0).all() for part in batch)
        for row, expected in enumerate(expected_rows):
            count = len(TARGETS[row])
            got = batch.source[row, :count][:, source[row] != 0]
            torch.testing.assert_close(got, expected.source[0], **CLOSE)
            torch.testing.assert_close(
                batch.prefix[row, :count, :count], expected.prefix[0], **CLOSE
            )
            torch.testing.assert_close(batch.rest[row, :count], expected.rest[0], **CLOSE)
            assert (batch.prefix[row, count:] == 0).all()


@pytest.mark.parametrize(("shape", "method"), by_shape())
def test_rows_sum_to_one_and_neither_padding_nor_batch_changes_them(shape, method):
    attention = heads(2, 1) if shape == "rmsnorm" else heads(4, 2)
    model = make_transformer(attention, rope(), cross=attention, **SHAPES[shape])
    checked_against_padding(model, method)


@pytest.mark.parametrize("method", ["relevance", "alti"])
@pytest.mark.parametrize("name", ["moa", "linear", "entmax", "lsh, small", "streaming, small"])
def test_so_they_do_of_mechanisms_with_gates_feature_maps_and_patterns(method, name):
    attention = load_variant(name)
    cross = attention if name in ("moa", "linear", "entmax") else None
    checked_against_padding(make_transformer(attention, cross=cross), method)


@pytest.mark.parametrize("method", OF_ALIGNMENTS)
@pytest.mark.parametrize("kind", RECURRENT, ids=label)
def test_so_they_do_of_recurrent_models(method, kind):
    checked_against_padding(make_recurrent(kind[0], **kind[1]), method)


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


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("method", FOLLOWING)
def test_a_model_that_copies_from_pi_owes_each_token_to_pi_alone(method, pre_norm):
    source = random_ids(3, 6)
    found = explain(copying_model(pre_norm=pre_norm), source, copied(source), method)
    looked = torch.eye(6)[list(PI[:6])].expand(3, 6, 6)
    share = found.source.sum(dim=2, keepdim=True)
    assert (share > 0.3).all()
    torch.testing.assert_close(found.source, looked * share, **CLOSE)
    torch.testing.assert_close(found.prefix.sum(dim=2), found.prefix.diagonal(0, 1, 2), **CLOSE)


def rank_correlation(one, other):
    """Spearman's, of all entries; ties in the order of a fixed shuffle."""
    order = torch.randperm(one.numel(), generator=torch.Generator().manual_seed(0))
    ranks = [x.flatten()[order].argsort(stable=True).argsort().float() for x in (one, other)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


@pytest.mark.parametrize("method", FOLLOWING)
def test_random_weights_destroy_the_map_and_a_little_noise_does_not(method):
    torch.manual_seed(0)
    source = random_ids(6, 8)
    target = copied(source)
    model = copying_model()
    plain = explain(model, source, target, method).source
    largest = plain.argmax(dim=2)
    noisy = explain(randomised(copying_model(), scale=1e-3), source, target, method).source
    assert torch.equal(noisy.argmax(dim=2), largest)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    random = explain(model, source, target, method).source
    assert abs(rank_correlation(plain, random)) < 0.15
    assert (random.argmax(dim=2) == largest).float().mean() < 0.3


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
def test_relevance_takes_gradients_where_they_are_switched_off():
    model = make_transformer()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert (alone(model, SOURCES[0], TARGETS[0], "relevance").source > 0).any()


@pytest.mark.parametrize("method", FOLLOWING)
@pytest.mark.parametrize("name", ["linformer", "xca"])
def test_a_slot_without_weights_is_named_by_those_that_need_them(method, name):
    model = make_transformer(load_variant(name))
    reason = METHODS[method].why_not(model)
    if method in ("attention", "value_norm"):
        assert reason is None
        return
    kernel = {"linformer": "LinformerKernel", "xca": "XCAKernel"}[name]
    words = f"no weights over keys are known of encoder.layers.0.self_attention ({kernel}), "
    assert reason == words + f"encoder.layers.1.self_attention ({kernel})"
    with pytest.raises(UserError, match=f"method={method} cannot be had: no weights over keys"):
        alone(model, SOURCES[0], TARGETS[0], method)


@pytest.mark.parametrize("method", FOLLOWING)
def test_a_recurrent_model_says_what_cannot_be_followed(method):
    reason = METHODS[method].why_not(make_recurrent("luong_general"))
    assert (reason is None) == (method in OF_ALIGNMENTS)
    assert reason is None or reason.startswith("the states of a recurrent model mix the tokens")
    assert METHODS[method].why_not(make_recurrent("none")) is not None
