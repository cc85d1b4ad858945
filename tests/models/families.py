"""A model of either family: every attention in every position that it goes with, and recurrent."""

import pytest

from tests.builders import load_choice, load_variant, make_transformer, pairs
from tests.models.recurrents import MODELS, SHAPES, label, make_recurrent

COPYING = [
    *(("copying", name, "none") for name in ("mha", "entmax", "linear", "performer", "moa")),
    ("copying", "gqa", "rope"),
    ("recurrent", "bahdanau", {"copy": True}),
    ("recurrent", "bahdanau", {"copy": True, **SHAPES["other order"]}),
    ("recurrent", "luong_general", {"copy": True, **SHAPES["fed"]}),
    ("recurrent", "luong_local_m", {"copy": True, **SHAPES["gru"]}),
]
"""Models that copy, by each cross-attention that can, and in every order of a recurrent step."""


def transformers(slot=None):
    """Test parameters, for `make`: each attention that fits the slot with each of its positions."""
    return [pytest.param(("transformer", *p.values), id=p.id, marks=p.marks) for p in pairs(slot)]


def families(slot=None):
    """As `transformers`, and the recurrent models, and those that copy."""
    recurrent = [pytest.param(("recurrent", *model), id=f"rnn {label(model)}") for model in MODELS]
    return [*transformers(slot), *recurrent, *copying()]


def copying():
    """Test parameters, for `make`: models that copy."""
    return [
        pytest.param(model, id=label(model[1:]) if model[0] == "recurrent" else "-".join(model))
        for model in COPYING
    ]


def make(parameter):
    """The randomised model of a test parameter, in eval mode."""
    family, name, rest = parameter
    if family == "recurrent":
        return make_recurrent(name, **rest)
    position = load_choice("position", rest)
    if family == "copying":
        return make_transformer(position=position, cross=load_variant(name), copy=True)
    return make_transformer(load_variant(name), position)
