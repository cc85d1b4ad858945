"""Searches over several models at once, which know nothing of what a model is made of."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.processors import NoRepeatNgram
from seqattn.tokens import BOS, EOS
from tests.builders import POSITIONS, heads, make_transformer
from tests.models.recurrents import make_recurrent

SOURCES = [[4, 5, 6, 3], [5, 3], [10, 9, 8, 7, 6, 3]]
SEARCHES = [GreedySearch, partial(BeamSearch, beam_size=3, n_best=3), partial(Sampling, n_best=2)]


def members():
    return make_transformer(heads(4, 2)), make_recurrent("bahdanau", copy=True)


@pytest.mark.parametrize("make_search", SEARCHES)
def test_hypotheses_have_the_mean_probability_of_the_models(make_search):
    models = members()
    search = make_search(LengthLimit(0.0, 5, 2), processors=[NoRepeatNgram(1)])
    for source, found in zip(SOURCES, Generator(Ensemble(models), search).generate(SOURCES)):
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
        twice = Generator(Ensemble([model, model]), search).generate(SOURCES)
        assert [[h.ids for h in one] for one in twice] == [[h.ids for h in one] for one in alone]


def test_the_shortest_reach_of_the_models_is_that_of_all():
    short = make_transformer(heads(4, 2), POSITIONS["learned"])
    assert Ensemble([members()[1], short]).max_target_length == short.max_target_length == 40
    assert Ensemble(members()).max_source_length is None


def test_a_search_sees_the_mean_of_where_the_models_look():
    models = [make_transformer(heads(4, 2)), make_transformer(heads(4, 4))]
    ids, begin = torch.tensor([SOURCES[0]]), torch.tensor([[BOS]])
    pair = Ensemble(models)
    with torch.no_grad():
        mean = pair.log_probabilities(begin, pair.start(pair.encode(ids)), need_weights=True)
        each = [m.log_probabilities(begin, m.start(m.encode(ids)), True).weights for m in models]
    assert (each[0] - each[1]).abs().max() > 1e-3
    assert_close(mean.weights, (each[0] + each[1]) / 2)
    without = make_recurrent("none")
    assert not Ensemble([models[0], without]).has_weights
