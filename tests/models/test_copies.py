"""Models can be copied and pickled like any other module, whatever they are made of."""

import copy
import pickle

import pytest
import torch

from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET
from tests.builders import (
    attention_choices,
    load_choice,
    make_transformer,
    position_choices,
    random_ids,
)
from tests.models import recurrents


def translator(model):
    return model, (random_ids(2, 5), random_ids(2, 3))


RECURRENT = {
    "copies": ("luong_general", {"copy": True}),
    **{n: (n, {}) for n in recurrents.ALIGNMENTS},
}
MODELS = {
    **{
        n: lambda n=n: translator(make_transformer(load_choice("attention", n)))
        for n in attention_choices()
    },
    **{
        f"position {n}": lambda n=n: translator(
            make_transformer(position=load_choice("position", n))
        )
        for n in position_choices()
    },
    **{
        f"recurrent {n}": lambda name=name, more=more: translator(
            recurrents.make_recurrent(name, **more)
        )
        for n, (name, more) in RECURRENT.items()
    },
}


def test_every_attention_of_conf_is_here():
    nodes = choices("attention")
    own = {name for name in nodes if not nodes[name][TARGET].startswith("seqattn.extras.")}
    assert own <= {*attention_choices(), *recurrents.ALIGNMENTS}


@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_says_the_same_and_shares_no_weights(kind):
    assert_copies_say_the_same(*MODELS[kind]())


def assert_copies_say_the_same(model, arguments):
    parts = model.train()(*arguments)  # what a step leaves behind is copied, too
    found = [x for x in (parts if isinstance(parts, tuple) else [parts]) if x is not None]
    sum(x[x.isfinite()].sum() for x in found).backward()
    others = [copy.deepcopy(model).eval(), pickle.loads(pickle.dumps(model)).eval()]
    with torch.inference_mode():
        expected = model.eval()(*arguments)
        for parameter in model.parameters():
            parameter.zero_()
        for other in others:
            torch.testing.assert_close(other(*arguments), expected, rtol=0, atol=0)
