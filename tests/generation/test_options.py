"""What searches and their parts refuse."""

import pytest

from seqattn.errors import UserError
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit, Sampling, stepper
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.generator import Generator
from seqattn.generation.minimum_bayes_risk import MinimumBayesRisk
from seqattn.tokens import EOS
from tests.generation.table_model import TableModel


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch, Sampling, MinimumBayesRisk])
def test_a_minimum_beyond_the_model_s_positions_is_refused_before_any_search(search):
    model = TableModel(7, longest=12)
    ensemble = Ensemble([TableModel(7, longest=20), model])
    for asked in (model, ensemble):
        Generator(asked, search(LengthLimit(minimum=12)))
        with pytest.raises(UserError, match=r"limit.minimum must be at most 12, .* got 13; lower"):
            Generator(asked, search(LengthLimit(minimum=13)))
    Generator(TableModel(7), search(LengthLimit(minimum=10_000)))


def test_a_search_over_long_outputs_says_that_it_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(stepper, "_NOTICE_EVERY", 10)
    model = TableModel(7)
    Generator(model, GreedySearch(LengthLimit(0, 25, minimum=25))).generate([[5, EOS]])
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" and ")[0] for line in told] == [
        f"outputs have reached {n} tokens" for n in (10, 20)
    ]


def test_more_outputs_than_beams_are_refused_in_words():
    with pytest.raises(UserError, match=r"^n_best must be from 1 to generation.beam_size \(5\)"):
        BeamSearch(n_best=6)
