"""Constraints that differ between the sources of a batch, in every search."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.errors import UserError
from seqattn.generation import (
    BeamSearch,
    Generator,
    GreedySearch,
    LengthLimit,
    MinimumBayesRisk,
    Sampling,
)
from seqattn.generation.constraints import Constraints
from seqattn.generation.processors import ForcedPrefix, NoRepeatNgram, Processor
from seqattn.tokens import EOS
from tests.builders import make_transformer
from tests.generation.table_model import TableModel
from tests.generation.test_beam import assert_same, exhaustive

SOURCES = [[4, 5, 3], [5, 3], [4, 4, 5, 5, 3], [5, 4, 3], [4, 3]]
SEARCHES = {
    "greedy": GreedySearch(),
    "beam": BeamSearch(beam_size=3, n_best=3),
    "sampling": Sampling(n_best=3),
    "mbr": MinimumBayesRisk(samples=8, n_best=2),
}
BEGINS = [(4, 4, 5), (), (5,), (4, 5, 4, 4), (5, 5)]


def generated(model, search, constraints, size):
    search = replace(search, limit=LengthLimit(1.5, 6), batch_size=size)
    return Generator(model, search).generate(SOURCES, constraints=constraints)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("make_model", [lambda: TableModel(7), make_transformer])
def test_each_source_of_a_batch_begins_with_its_own_tokens(name, make_model):
    """The same as if it were alone and had a search with this beginning."""
    model, bans = make_model(), [NoRepeatNgram(1)]
    search = replace(SEARCHES[name], processors=bans)
    outputs = generated(model, search, [Constraints(ids) for ids in BEGINS], 8)
    for place, (source, ids) in enumerate(zip(SOURCES, BEGINS)):
        own = replace(search, limit=LengthLimit(1.5, 6), processors=[ForcedPrefix(ids, bans)])
        [alone] = Generator(model, own).generate([source], [place])
        assert [one.ids for one in outputs[place]] == [one.ids for one in alone]
        for one, other in zip(outputs[place], alone):
            assert one.ids[: len(ids)] == ids
            assert one.score == pytest.approx(other.score, abs=1e-4)


ENDS = [np.array([5]), np.array([4, EOS])]
"""After one token 4: 5 in place of a second 4, or 4 or the end behind it."""


def begins(ids):
    """Whether an output, with its end or cut, begins as `Constraints((4, 4), ENDS)` says."""
    whole = (*ids, EOS)
    return whole[:2] == (4, 5) or (whole[:2] == (4, 4) and whole[2] in (4, EOS))


def test_a_wide_beam_finds_the_best_of_all_outputs_with_other_ends_of_a_beginning():
    model = TableModel(6, scale=1.0)
    search = BeamSearch(LengthLimit(0.0, 4), 700, 30, early_stopping=False)
    each = [Constraints((4, 4), ENDS), Constraints()] * 2
    outputs = Generator(model, search).generate(SOURCES[:4], constraints=each)
    for source, own, few in zip(SOURCES, each, outputs):
        every = exhaustive(lambda p, s=source: model.following(s, p), 4, 1.0)
        expected = [one for one in every if not own.ids or begins(one[0])]
        assert len(expected) > 20
        assert_same(few, expected[:30])


class Without(Processor):
    """Forbids a token, and notes whose hypotheses it has seen."""

    def __init__(self, token):
        self.token, self.rows = token, set()

    def __call__(self, scores, prefix):
        self.rows.add(len(scores))
        scores[:, self.token] = -math.inf


@pytest.mark.parametrize("name", SEARCHES)
def test_a_processor_of_a_source_sees_its_hypotheses_alone(name):
    model, search = TableModel(7), SEARCHES[name]
    each = [Constraints(processor=Without(4 + place % 3)) for place in range(len(SOURCES))]
    outputs = generated(model, search, each, 8)
    for place, own in enumerate(each):
        assert own.processor.rows == {search.beams}
        alone = replace(search, limit=LengthLimit(1.5, 6), processors=[own.processor])
        expected = Generator(model, alone).generate([SOURCES[place]], [place])
        assert [one.ids for one in outputs[place]] == [one.ids for one in expected[0]]


def test_constraints_reach_worker_processes_in_the_order_of_the_sources():
    model, each = make_transformer(), [Constraints(ids) for ids in BEGINS]
    search = replace(SEARCHES["beam"], workers=2)
    outputs = generated(model, search, each, 2)
    assert outputs == generated(model, replace(search, workers=1), each, 2)
    firsts = [best.ids[: len(ids)] for (best, *_), ids in zip(outputs, BEGINS)]
    assert firsts == BEGINS


def test_beginnings_beyond_the_limit_of_an_output_are_refused():
    for own, tokens in ((Constraints((4,) * 9), 9), (Constraints((4,) * 8, ENDS, False), 9)):
        generator = Generator(TableModel(6), GreedySearch(LengthLimit(0.0, 8)))
        line = f"prefix has {tokens} tokens, but the output of input 3 is limited to 8; increase "
        with pytest.raises(UserError, match=line):
            generator.generate(SOURCES[:3], constraints=[Constraints(), Constraints(), own])


def test_rows_without_a_beginning_keep_their_scores():
    scores = torch.randn(2, 6)
    processed, prefix = scores.clone(), torch.tensor([[4], [5]])
    Constraints((4, 4), ENDS).restrict(scores, processed, prefix)
    assert torch.equal(processed[1], scores[1])
    allowed = [token for token in range(6) if processed[0, token] > -math.inf]
    assert allowed == [4, 5]
    assert torch.equal(processed[0, allowed], scores[0, allowed])
