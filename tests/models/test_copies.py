"""Models can be copied and pickled like any other module."""

import copy
import pickle

import pytest
import torch

from tests.builders import load_choice, make_transformer, random_ids
from tests.models import recurrents, spans


def translators(model):
    return model, (random_ids(2, 5), random_ids(2, 3))


MODELS = {
    "transformer": lambda: translators(make_transformer(load_choice("attention", "moa"))),
    "relative": lambda: translators(make_transformer(position=load_choice("position", "deberta"))),
    "recurrent": lambda: translators(recurrents.make_recurrent("luong_general", copy=True)),
    "span reader": lambda: (spans.make_recurrent(), (spans.inputs(),)),
    "span encoder": lambda: (spans.make_transformer_reader(), (spans.inputs(),)),
}


@torch.inference_mode()
@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_says_the_same_and_shares_no_weights(kind, again):
    model, arguments = MODELS[kind]()
    other = again(model)
    expected = model(*arguments)
    torch.testing.assert_close(other(*arguments), expected, rtol=0, atol=0)
    for parameter in model.parameters():
        parameter.zero_()
    torch.testing.assert_close(other(*arguments), expected, rtol=0, atol=0)
