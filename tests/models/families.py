"""A model of either family: every attention in every position that it goes with, and recurrent."""

import pytest

from tests.builders import load_choice, load_variant, make_transformer, pairs
from tests.models.recurrents import MODELS, label, make_recurrent


def transformers(slot=None):
    """Test parameters, for `make`: each attention that fits the slot with each of its positions."""
    return [pytest.param(("transformer", *p.values), id=p.id, marks=p.marks) for p in pairs(slot)]


def families(slot=None):
    """As `transformers`, and the recurrent models."""
    recurrent = [pytest.param(("recurrent", *model), id=f"rnn {label(model)}") for model in MODELS]
    return [*transformers(slot), *recurrent]


def make(parameter):
    """The randomised model of a test parameter, in eval mode."""
    family, name, rest = parameter
    if family == "recurrent":
        return make_recurrent(name, **rest)
    return make_transformer(load_variant(name), load_choice("position", rest))
