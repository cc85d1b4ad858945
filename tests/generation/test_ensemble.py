"""A search over two models at once, which knows nothing of what a model is made of."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import nn

from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.processors import NoRepeatNgram
from seqattn.models.base import Prediction
from seqattn.tokens import BOS, EOS
from tests.builders import heads, make_transformer
from tests.models.recurrents import make_recurrent

SOURCES = [[4, 5, 6, 3], [5, 3], [10, 9, 8, 7, 6, 3]]
SEARCHES = [GreedySearch, partial(BeamSearch, beam_size=3, n_best=3), partial(Sampling, n_best=2)]


class Memories(NamedTuple):
    ids: torch.Tensor
    real: torch.Tensor
    each: list


class States(list):
    def reorder(self, index):
        for state in self:
            state.reorder(index)

    def keep(self, sentences):
        for state in self:
            state.keep(sentences)


class Ensemble(nn.Module):
    """The mean probability of several models."""

    has_weights = False
    max_source_length = max_target_length = None

    def __init__(self, *models):
        super().__init__()
        self.models = nn.ModuleList(models)

    def encode(self, ids):
        each = [model.encode(ids) for model in self.models]
        return Memories(ids, each[0].real, each)

    def start(self, memory, beams=1):
        pairs = zip(self.models, memory.each, strict=True)
        return States(model.start(own, beams) for model, own in pairs)

    def log_probabilities(self, ids, state, need_weights=False):
        pairs = zip(self.models, state, strict=True)
        each = [model.log_probabilities(ids, own).log_probabilities for model, own in pairs]
        return Prediction(torch.stack(each).exp().mean(dim=0).log(), None)


def members():
    return make_transformer(heads(4, 2)), make_recurrent("bahdanau", copy=True)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_hypotheses_have_the_mean_probability_of_the_models(make_search):
    models = members()
    search = make_search(LengthLimit(0.0, 5, 2), processors=[NoRepeatNgram(1)])
    for source, found in zip(SOURCES, Generator(Ensemble(*models), search).generate(SOURCES)):
        for hypothesis in found:
            said = [*hypothesis.ids, EOS][:5]
            given = torch.tensor([source]), torch.tensor([[BOS, *said[:-1]]])
            with torch.no_grad():
                each = [model(*given)[0].softmax(-1) for model in models]
            mean = torch.stack(each).mean(dim=0).log()
            total = mean.gather(1, torch.tensor(said)[:, None]).sum().item()
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_a_model_twice_finds_what_it_finds_alone(make_search):
    for model in members():
        search = make_search(LengthLimit(1.0, 4))
        alone = Generator(model, search).generate(SOURCES)
        twice = Generator(Ensemble(model, model), search).generate(SOURCES)
        assert [[h.ids for h in one] for one in twice] == [[h.ids for h in one] for one in alone]
