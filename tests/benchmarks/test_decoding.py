"""The decoding benchmark: both decoders generate exactly as much, over a whole contest."""

import sys
from functools import partial

import pytest
import torch

from seqattn.benchmarks.decoding import DecodingSuite, decoder, marian_decode
from seqattn.benchmarks.transformer_models import marian_model, own_transformer, parameters_of
from seqattn.errors import UserError
from tests.benchmarks.small import SHAPE, CopyingText, random_rows, shape_of

SUITE = partial(DecodingSuite, corpus=CopyingText(), shape=shape_of, sentences=9, length=5)


@pytest.mark.parametrize("beams", [1, 5])
def test_our_search_gives_every_source_exactly_the_forced_length(beams):
    assert decoder(own_transformer(SHAPE), beams, 32)(random_rows(3, 7)) == 3 * 32


@pytest.mark.parametrize("beams", [1, 5])
def test_marian_gives_every_source_exactly_the_forced_length(beams):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    assert marian_decode(marian_model(SHAPE), random_rows(3, 7), beams, 32) == 3 * 32


def test_marian_has_our_parameters_but_for_the_two_final_norms():
    pytest.importorskip("transformers")
    ours, theirs = parameters_of(own_transformer(SHAPE)), parameters_of(marian_model(SHAPE))
    assert ours - theirs == 2 * 2 * SHAPE.dim


def test_a_contest_runs_for_greedy_and_beam_search(capsys):
    pytest.importorskip("transformers")
    rows = SUITE(beams=[1, 3], batch_size=4).run()
    assert [(row["search"], row["sentences"]) for row in rows] == [("greedy", 9), ("beam 3", 9)]
    for row in rows:
        assert 0 < row["ratio"].low <= row["ratio"].median <= row["ratio"].high
        assert row["tokens/s"] == pytest.approx(5 * row["sentences/s"])
    assert "MarianMTModel" in capsys.readouterr().out


def test_batches_hold_every_source_once_the_longest_first(monkeypatch):
    batches = []

    def recorded(model, rows, beams, length):
        batches.append(rows)
        return len(rows) * length

    monkeypatch.setattr(
        "seqattn.benchmarks.decoding.marian_model", lambda shape: torch.nn.Identity()
    )
    monkeypatch.setattr("seqattn.benchmarks.decoding.marian_decode", recorded)
    SUITE(beams=[1], batch_size=4).run()
    warm_up, *rest = batches
    assert warm_up == rest[-1]
    assert [len(batch) for batch in rest] == [4, 4, 1]
    lengths = [len(row) for batch in rest for row in batch]
    assert lengths == sorted(map(len, random_rows(9, 7)), reverse=True)


def test_without_transformers_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install seqattn\[bench\]"):
        marian_model(SHAPE)


def test_one_batch_alone_and_no_beams_are_refused():
    with pytest.raises(UserError, match=r"more than batch_size \(9\), got 9"):
        SUITE(batch_size=9).run()
    with pytest.raises(UserError, match="beams must be"):
        SUITE(beams=[0])


def test_a_profile_names_the_matrix_products_of_a_position():
    rows = SUITE(beams=[3], batch_size=4, profile=True).run()
    names = {row["operator"] for row in rows}
    assert names & {"aten::mm", "mkldnn::_linear_pointwise"}
    assert "aten::addmm" in names
