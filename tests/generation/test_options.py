"""What searches and their parts refuse."""

import math

import pytest

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, GreedySearch, LengthLimit, Sampling, stepper
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.minimum_bayes_risk import MinimumBayesRisk
from seqattn.generation.processors import NoRepeatNgram
from seqattn.generation.span_search import SpanSearch
from seqattn.tokens import EOS
from tests.generation.table_model import TableModel
from tests.nodes import made

BAD = {
    BeamSearch: {
        "n_best": [0], "beam_size": [0, 100_000], "length_penalty": [-0.1, math.nan],
        "coverage_penalty": [-0.5], "workers": [0],
    },
    Sampling: {"temperature": [0, math.nan], "top_p": [0, 1.1], "top_k": [-1], "n_best": [0]},
    SpanSearch: {"max_answer": [0], "answers": [0], "threshold": [1.5]},
    LengthLimit: {"ratio": [-1.0, 101.0], "extra": [10_001], "minimum": [-1, 10_001]},
    NoRepeatNgram: {"size": [0]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (kind, key, x)
        for kind, keys in BAD.items()
        for key, several in keys.items()
        for x in several
    ],
)
def test_a_value_out_of_its_range_is_refused_by_its_name(kind, key, value):
    with pytest.raises(BadValue) as caught:
        made(kind, **{key: value})
    assert caught.value.key == key


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch, Sampling, MinimumBayesRisk])
def test_a_minimum_beyond_the_model_s_positions_is_refused_before_any_search(search):
    model = TableModel(7, longest=12)
    ensemble = Ensemble([TableModel(7, longest=20), model])
    for asked in (model, ensemble):
        search(LengthLimit(minimum=12)).over(asked)
        with pytest.raises(UserError, match=r"limit.minimum must be at most 12, .* got 13; lower"):
            search(LengthLimit(minimum=13)).over(asked)
    search(LengthLimit(minimum=10_000)).over(TableModel(7))


def test_a_search_over_long_outputs_says_that_it_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(stepper, "_TELL", 10)
    model = TableModel(7)
    GreedySearch(LengthLimit(0, 25, minimum=25)).over(model).generate([[5, EOS]])
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" and ")[0] for line in told] == [
        f"outputs have reached {n} tokens" for n in (10, 20)
    ]


def test_more_outputs_than_beams_are_refused_in_words():
    with pytest.raises(UserError, match=r"^n_best must be from 1 to generation.beam_size \(5\)"):
        BeamSearch(n_best=6)
