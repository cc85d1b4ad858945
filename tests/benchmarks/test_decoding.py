"""The decoding benchmark: all contestants decode all sentences, in turns."""

from functools import partial

import pytest
import torch

from benchmarks.decoding import DecodingSuite
from seqattn.errors import UserError
from tests.benchmarks.small import CopyingText, random_rows, shape_of, stand_in
from tests.nodes import made

SUITE = partial(DecodingSuite, corpus=CopyingText(), shape=shape_of, sentences=9, length=5)


def test_a_contest_has_a_table_for_each_search(monkeypatch, capsys):
    stand_in(monkeypatch)
    rows = SUITE(beams=[1, 3], rounds=2, precisions=["fp32"], threads=1, workers=2).run()
    names = ["seqattn", "HF Marian", "Joey NMT", "Eole", "CTranslate2", "matrix products only"]
    assert [row["contestant"] for row in rows] == 2 * names
    for table, search in ((rows[:6], "greedy"), (rows[6:], "beam 3")):
        assert table[0]["seqattn speedup"] == (1.0, 1.0, 1.0)
        assert table[0]["table"] == (
            f"Decoding, {search}, 9 sentences of 5 tokens, workers=2 threads=1"
        )
    assert torch.get_num_threads() == 1
    assert "CTranslate2" in capsys.readouterr().out


def test_all_decode_every_source_longest_first_in_every_round(monkeypatch):
    asked = []

    def ask(contestant, method, *arguments):
        if method == "make":
            return 1
        if method == "memory":
            return 1.0
        asked.append(arguments)
        return 1.0, 1.0, len(arguments[0]) * arguments[2]

    stand_in(monkeypatch)
    monkeypatch.setattr("benchmarks.contestants.Contestant.ask", ask)
    SUITE(contestants=["eole"], beams=[3], rounds=2, batch_size=4, precisions=["fp32"]).run()
    rows = sorted(random_rows(9, 7), key=len, reverse=True)
    assert asked == [(rows[:4], 3, 5, 4), (rows, 3, 5, 4), (rows, 3, 5, 4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": [0]}, "beams must be"),
        ({"contestants": ["fairseq"]}, "contestants must be"),
        ({"workers": 0}, "workers must be"),
    ],
)
def test_a_suite_refuses_values_outside_their_bounds(options, message):
    with pytest.raises(UserError, match=message):
        made(SUITE.func, **options)


def test_a_profile_names_the_matrix_products_of_a_position():
    rows = SUITE(beams=[3], batch_size=4, profile=True).run()
    names = {row["operator"] for row in rows}
    assert names & {"aten::mm", "mkldnn::_linear_pointwise"}
    assert "aten::addmm" in names
