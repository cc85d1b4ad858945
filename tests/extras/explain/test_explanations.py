"""What holds of every method of explaining, on models of both families."""

from functools import partial

import pytest
import torch

from seqattn.attention.kernels.talking_heads import TalkingHeadsKernel
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import METHODS, Contrasting, Explanation, explain
from tests.builders import (
    abilities_of,
    attention_variants,
    heads,
    load_choice,
    load_variant,
    make_transformer,
    one_scheme,
    padded,
    random_ids,
    randomised,
)
from tests.extras.explain.copying_model import PI, copied, copying_model
from tests.models.recurrents import MODELS as KINDS
from tests.models.recurrents import label, make_recurrent

SOURCES = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
TARGETS = [[6, 4, 3], [5, 8, 7, 10, 3]]


def attending(name):
    """A Transformer with an attention of `attention_variants` in every slot that it fits."""
    attention = load_variant(name)
    cross = attention if abilities_of(name).fits("cross") else None
    return make_transformer(attention, load_choice("position", one_scheme(name)), cross=cross)


def mixed_heads():
    """A Transformer of talking heads, about half of whose weights are negative."""
    model = attending("talking_heads")
    for attention in model.modules():
        if isinstance(attention, TalkingHeadsKernel):
            torch.nn.init.normal_(attention.mix_weights)
    return model


MODELS = {
    "gqa, copying": lambda: make_transformer(
        heads(4, 2), load_choice("position", "rope"), copy=True
    ),
    "post-norm": lambda: make_transformer(
        position=load_choice("position", "learned"), pre_norm=False
    ),
    "window": lambda: make_transformer(load_variant("sliding_window, small")),
    "rmsnorm, of two widths": lambda: make_transformer(
        heads(2, 1),
        cross=heads(2, 1),
        norm="rmsnorm",
        encoder_dim=12,
        share_embeddings="target",
    ),
    "linear": lambda: make_transformer(load_variant("linear"), cross=load_variant("linear")),
    "moa": lambda: make_transformer(load_variant("moa"), cross=load_variant("moa")),
    "lsh": lambda: make_transformer(load_variant("lsh, small")),
    "talking heads": mixed_heads,
    "xca": lambda: make_transformer(load_variant("xca")),
    "bahdanau": lambda: make_recurrent("bahdanau", copy=True),
    "luong, fed": lambda: make_recurrent(
        "luong_general", order="after", input_feeding=True, decoder_layers=2
    ),
    "luong, local": lambda: make_recurrent("luong_local_p"),
    "no attention": lambda: make_recurrent("none"),
}
MORE = {
    **{name: partial(attending, name) for name in attention_variants()},
    **{label(kind): partial(make_recurrent, kind[0], **kind[1]) for kind in KINDS},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, id=name) for name, make in MODELS.items()),
        *(pytest.param(make, id=name, marks=pytest.mark.exhaustive) for name, make in MORE.items()),
    ],
)
def test_neither_batch_nor_padding_on_a_side_changes_an_explanation(make, method, monkeypatch):
    for key, count in (("pieces", 1), ("most", 4)):  # steps of moa and lsh would take all 64
        monkeypatch.setattr(METHODS["integrated_gradients"], key, count)
    model = make()
    if METHODS[method].why_not(model):
        with pytest.raises(UserError, match=f"method={method} is not available: "):
            explain(model, padded(SOURCES), padded(TARGETS), method)
        return
    alone = [
        explain(model, torch.tensor([source]), torch.tensor([target]), method)
        for source, target in zip(SOURCES, TARGETS)
    ]
    for left in (False, True):
        source, target = padded(SOURCES, left), padded(TARGETS)
        batch = explain(model, source, target, method)
        for row, wanted in enumerate(alone):
            count, read = len(TARGETS[row]), source[row] != 0
            found = Explanation(
                batch.source[row, :count][:, read],
                batch.prefix[row, :count, :count],
                batch.rest[row, :count],
            )
            largest = 1e-5 * max(1.0, *(part.abs().max().item() for part in wanted))
            for part, expected in zip(found, wanted, strict=True):
                torch.testing.assert_close(part, expected[0], atol=5 * largest, rtol=1e-4)
            assert not batch.source[row][:, ~read].any()
            assert not any(part[row, count:].any() for part in batch)
        assert not batch.prefix.triu(1).any()
        if not METHODS[method].signed:
            assert all((part >= 0).all() for part in batch)
            whole = batch.source.sum(dim=2) + batch.prefix.sum(dim=2) + batch.rest
            torch.testing.assert_close(whole, (target != 0).float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["value_norm", "alti"])
def test_a_model_in_bfloat16_is_explained_as_in_float32(method):
    """Whose linear attention makes its weights in float32."""
    found, wanted = (
        explain(model, padded(SOURCES), padded(TARGETS), method).source
        for model in (MODELS["linear"]().bfloat16(), MODELS["linear"]())
    )
    torch.testing.assert_close(found.float(), wanted, atol=0.02, rtol=0.0)


LOOKED = torch.tensor(PI[:8])
"""Where the model that copies looks, of 8 tokens."""


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_copies_from_pi_owes_each_token_to_pi_alone(method, pre_norm):
    source = random_ids(3, 8)
    found = explain(copying_model(pre_norm=pre_norm), source, copied(source), method)
    shares = found.source[:, torch.arange(8), LOOKED]
    assert (shares > (1e-3 if METHODS[method].signed else 0.3)).all()
    looked = torch.eye(8)[LOOKED]
    torch.testing.assert_close(found.source, looked * shares[..., None], atol=1e-5, rtol=1e-4)
    own = found.prefix.diagonal(0, 1, 2)
    torch.testing.assert_close(found.prefix.sum(dim=2), own, atol=1e-5, rtol=1e-4)


CONTRASTING = [name for name, method in METHODS.items() if isinstance(method, Contrasting)]
SUMMED = ["input_x_gradient", "integrated_gradients", "occlusion"]
"""Those whose rows add up to the difference of log-probabilities."""


@pytest.mark.parametrize("method", CONTRASTING)
@pytest.mark.parametrize("name", ["gqa, copying", "post-norm", "bahdanau", "luong, fed"])
def test_a_contrast_changes_its_sign_with_the_order_and_is_0_between_equal_tokens(name, method):
    model, source = MODELS[name](), torch.tensor([SOURCES[0]])
    one, other = torch.tensor([[6, 4, 5], [6, 4, 8]]).split(1)
    there, back = (
        explain(model, source, one, method, other),
        explain(model, source, other, method, one),
    )
    for found, opposite in zip(there, back, strict=True):
        torch.testing.assert_close(found[:, -1], -opposite[:, -1], atol=1e-6, rtol=1e-4)
        assert not found[:, :-1].any()
    assert there.source[0, -1].abs().max() > 1e-6
    assert not any(part.any() for part in explain(model, source, one, method, one))
    if method in SUMMED:
        begun = torch.tensor([[2, 6, 4]])
        said = model(source, begun)[0, -1].log_softmax(dim=0)
        whole = sum(part[0, -1].sum() for part in there)
        torch.testing.assert_close(whole, said[5] - said[8], atol=0.06, rtol=0.01)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in CONTRASTING])
def test_methods_that_do_not_read_the_predicted_token_cannot_compare_two(method):
    ids = torch.tensor([[3]])
    with pytest.raises(UserError, match=f"method={method} does not depend on the predicted token"):
        explain(copying_model(), ids, ids, method, ids)


@pytest.mark.parametrize("method", CONTRASTING)
def test_a_model_that_copies_owes_the_choice_between_two_tokens_to_pi_alone(method):
    source = random_ids(3, 8)
    target = copied(source)
    found = explain(copying_model(), source, target, method, (target - 3) % 5 + 4)
    own = found.source[:, torch.arange(8), LOOKED]
    assert (own > 1e-3).all()
    torch.testing.assert_close(found.source.sum(dim=2), own, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_random_weights_destroy_the_map_and_a_little_noise_does_not(method):
    """Adebayo et al. 2018 (arXiv 1810.03292): a map that stays is not the model's."""
    torch.manual_seed(0)
    source, model = random_ids(3, 8), randomised(copying_model(), scale=1e-3)
    found = explain(model, source, copied(source), method).source
    assert torch.equal(found.argmax(dim=2), LOOKED.expand(3, 8))
    for module in model.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    found = explain(model, source, copied(source), method).source
    assert (found.argmax(dim=2) == LOOKED).float().mean() < 0.3


def test_a_name_that_no_method_has_is_refused_with_the_choices():
    with pytest.raises(UserError, match="unknown method lime; choose from attention, "):
        explain(make_transformer(), torch.tensor([[3]]), torch.tensor([[3]]), "lime")
