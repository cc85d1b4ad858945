"""The decoding benchmark: both decoders generate exactly as much, over a whole contest."""

import sys

import pytest
import torch

from seqattn.benchmarks.decoding import (
    DecodingPlan,
    decode,
    generator_of,
    measure_decoding,
    profile_decoding,
)
from seqattn.benchmarks.marian import marian_decode, marian_model
from seqattn.benchmarks.shape import parameters_of, seqattn_model
from seqattn.errors import UserError
from tests.benchmarks.small import SHAPE, random_rows

SOURCES = tuple(tuple(row) for row in random_rows(9, 7))


@pytest.mark.parametrize("beams", [1, 5])
def test_our_search_gives_every_source_exactly_the_forced_length(beams):
    generator = generator_of(seqattn_model(SHAPE), beams, 32)
    found = generator.generate(random_rows(3, 7))
    assert [len(hypotheses[0].ids) for hypotheses in found] == [32, 32, 32]
    assert decode(generator, random_rows(3, 7)) == 3 * 32


@pytest.mark.parametrize("beams", [1, 5])
def test_marian_gives_every_source_exactly_the_forced_length(beams):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    assert marian_decode(marian_model(SHAPE), random_rows(3, 7), beams, 32) == 3 * 32


def test_marian_has_our_parameters_but_for_the_two_final_norms():
    pytest.importorskip("transformers")
    ours, theirs = parameters_of(seqattn_model(SHAPE)), parameters_of(marian_model(SHAPE))
    assert ours - theirs == 2 * 2 * SHAPE.dim


def test_a_contest_runs_for_greedy_and_beam_search():
    pytest.importorskip("transformers")
    plan = DecodingPlan(SHAPE, SOURCES, beams=(1, 3), length=5, batch_size=4)
    rows = measure_decoding(plan)
    assert [(row.beams, row.sentences) for row in rows] == [(1, 9), (3, 9)]
    for row in rows:
        assert 0 < row.ratio.low <= row.ratio.median <= row.ratio.high
        assert row.tokens_per_second > 0


def test_batches_hold_every_source_once_the_longest_first():
    batches = DecodingPlan(SHAPE, SOURCES, batch_size=4).batches()
    assert [len(batch) for batch in batches] == [4, 4, 1]
    lengths = [len(row) for batch in batches for row in batch]
    assert lengths == sorted((len(source) for source in SOURCES), reverse=True)


def test_without_transformers_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install seqattn\[bench\]"):
        marian_model(SHAPE)


def test_a_plan_with_one_batch_is_refused():
    with pytest.raises(UserError, match=r"more than batch_size \(9\), got 9"):
        DecodingPlan(SHAPE, SOURCES, batch_size=9)


def test_a_profile_names_the_matrix_products_of_a_position():
    plan = DecodingPlan(SHAPE, SOURCES, length=5, batch_size=4)
    names = {found.name for found in profile_decoding(plan, 3)}
    assert names & {"aten::mm", "mkldnn::_linear_pointwise"}
    assert "aten::addmm" in names
