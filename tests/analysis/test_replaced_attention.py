"""Attentions are replaced layer by layer, slot by slot, and all at once."""

import pytest

from seqattn.analysis.replaced_attention import parts_of
from seqattn.errors import UserError
from tests.builders import load_variant, make_transformer
from tests.models.recurrents import make_recurrent


def test_layers_slots_and_all_of_them():
    found = parts_of(make_transformer(layers=(1, 2)))
    cross = [f"decoder.layers.{n}.cross_attention" for n in (0, 1)]
    own = [f"decoder.layers.{n}.self_attention" for n in (0, 1)]
    encoder = ["encoder.layers.0.self_attention"]
    assert found.parts == {
        "all": [*encoder, *own, *cross], "encoder": encoder, "decoder": own, "cross": cross,
        "decoder 1": own[:1], "decoder 2": own[1:], "cross 1": cross[:1], "cross 2": cross[1:],
    }  # fmt: skip
    assert found.without == []


def test_a_recurrent_model_has_one():
    assert parts_of(make_recurrent("bahdanau")).parts == {"all": ["decoder.cross_attention"]}


def test_what_has_no_weights_is_left_as_it_is():
    model = make_transformer(load_variant("xca"), layers=(2, 1))
    found = parts_of(model)
    assert found.without == [f"encoder.layers.{n}.self_attention" for n in (0, 1)]
    assert set(found.parts) == {"all", "decoder", "cross"}


def test_a_model_without_weights_is_refused():
    with pytest.raises(UserError, match="no attention has weights"):
        parts_of(make_recurrent("none"))
