"""A model of either family: every attention in every position that it goes with, and recurrent."""

from functools import partial

import pytest

from seqattn.positions import RotaryPosition, SinusoidalPosition
from tests.builders import heads, load_choice, load_variant, make_transformer, pairs
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


SHAPED = {
    "as BART": {
        "position": partial(SinusoidalPosition, layout="halves", first=2, endpoint=True),
        "pre_norm": False,
        "activation": "gelu_tanh",
        "embedding_scale": 1.0,
        "embedding_norm": True,
        "output_bias": True,
    },
    "as T5Gemma": {
        "attention": heads(4, 2, bias=False, head_dim=10),
        "cross": heads(4, 2, bias=False, head_dim=10),
        "position": RotaryPosition,
        "activation": "geglu_tanh",
        "norm": "rmsnorm",
        "bias": False,
        "branch_norm": True,
        "share_embeddings": "inputs",
    },
    "normalized queries and keys": {
        "attention": heads(4, 2, qk_norm=True),
        "cross": heads(4, 2, qk_norm=True),
        "position": RotaryPosition,
    },
}
"""Transformers with the settings of other toolkits' models."""


def transformers(slot=None):
    """Test parameters, for `make`: each attention that fits the slot with each of its positions."""
    return [pytest.param(("transformer", *p.values), id=p.id, marks=p.marks) for p in pairs(slot)]


def families(slot=None):
    """As `transformers`, and the recurrent models, and those that copy."""
    recurrent = [pytest.param(("recurrent", *model), id=f"rnn {label(model)}") for model in MODELS]
    shaped = [pytest.param(("shaped", name, None), id=name) for name in SHAPED]
    return [*transformers(slot), *recurrent, *copying(), *shaped]


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
    if family == "shaped":
        return make_transformer(**SHAPED[name])
    position = load_choice("position", rest)
    if family == "copying":
        return make_transformer(position=position, cross=load_variant(name), copy=True)
    return make_transformer(load_variant(name), position)
