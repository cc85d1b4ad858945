"""What holds of every method of explaining, on models of both families."""

from functools import partial

import pytest
import torch

from seqattn.analysis.explanations import METHODS, Explanation, explain
from seqattn.errors import UserError
from tests.builders import (
    abilities_of,
    attention_variants,
    heads,
    load_choice,
    load_variant,
    make_transformer,
    one_scheme,
    padded,
)
from tests.models.recurrents import MODELS as KINDS
from tests.models.recurrents import label, make_recurrent

SOURCES = [[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]]
TARGETS = [[6, 4, 3], [5, 8, 7, 10, 3]]


def attending(name):
    """A Transformer with an attention of `attention_variants` in every slot that it fits."""
    attention = load_variant(name)
    cross = attention if abilities_of(name).fits("cross") else None
    return make_transformer(attention, load_choice("position", one_scheme(name)), cross=cross)


MODELS = {
    "gqa, copying": lambda: make_transformer(
        heads(4, 2), load_choice("position", "rope"), copy=True
    ),
    "post-norm": lambda: make_transformer(
        position=load_choice("position", "learned"), pre_norm=False
    ),
    "window": lambda: make_transformer(load_variant("sliding_window, small")),
    "linear": lambda: make_transformer(load_variant("linear"), cross=load_variant("linear")),
    "xca": lambda: make_transformer(load_variant("xca")),
    "bahdanau": lambda: make_recurrent("bahdanau", copy=True),
    "luong, fed": lambda: make_recurrent(
        "luong_general", order="after", input_feeding=True, decoder_layers=2
    ),
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
    monkeypatch.setattr(METHODS["integrated_gradients"], "steps", 3)
    model = make()
    if METHODS[method].why_not(model):
        with pytest.raises(UserError, match=f"method={method} cannot be had: "):
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
            for part, expected in zip(found, wanted, strict=True):
                torch.testing.assert_close(part, expected[0], atol=1e-5, rtol=1e-5)
            assert not batch.source[row][:, ~read].any()
            assert not any(part[row, count:].any() for part in batch)
        assert not batch.prefix.triu(1).any()
        assert METHODS[method].signed or all((part >= 0).all() for part in batch)


def test_a_name_that_no_method_has_is_refused_with_the_choices():
    with pytest.raises(UserError, match="there is no method lime; the choices are: attention, "):
        explain(make_transformer(), torch.tensor([[3]]), torch.tensor([[3]]), "lime")
