"""What every search obeys: limits, batches, order, and rows that leave when they are done."""

from dataclasses import replace

import pytest
import torch

from seqattn.errors import UserError
from seqattn.generation import (
    BeamSearch,
    Generator,
    GreedySearch,
    Hypothesis,
    LengthLimit,
    MinimumBayesRisk,
    Sampling,
)
from seqattn.tokens import EOS
from tests.builders import HEADS, POSITIONS, heads, make_transformer
from tests.generation.table_model import TableModel

SOURCES = [[4, 5, 3], [], [5, 3], [4, 4, 9, 10, 8, 5, 3], [6, 3], [7, 8, 4, 3], [6, 6, 6, 3]]
SEARCHES = {
    "greedy": lambda **limit: GreedySearch(LengthLimit(**limit)),
    "beam": lambda **limit: BeamSearch(LengthLimit(**limit), 3, 2),
    "exact-beam": lambda **limit: BeamSearch(LengthLimit(**limit), 3, early_stopping=False),
    "sampling": lambda **limit: Sampling(LengthLimit(**limit), n_best=2, seed=3),
    "cut-sampling": lambda **limit: Sampling(LengthLimit(**limit), 1.3, top_k=6, top_p=0.9),
    "mbr": lambda **limit: MinimumBayesRisk(LengthLimit(**limit), n_best=2, seed=3, samples=4),
}
searches = pytest.mark.parametrize("make", SEARCHES.values(), ids=SEARCHES)


def never_ends(source, prefix):
    return [0.0, 0.0, 0.0, -1e9, 1.0, 0.5, 0.2]


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert [h.ids for h in one] == [h.ids for h in other]
        for h, o in zip(one, other):
            assert h.log_probability == pytest.approx(o.log_probability, abs=1e-4)
            assert h.score == pytest.approx(o.score, abs=1e-4)


@searches
@pytest.mark.parametrize("scheme", ["learned", "rope"])
def test_batching_and_padding_change_no_hypothesis_of_a_transformer(make, scheme):
    model = make_transformer(heads(HEADS, 2), POSITIONS[scheme])
    search = make(ratio=1.0, extra=5)
    one_by_one = Generator(model, replace(search, batch_size=1)).generate(SOURCES)
    for batches in ({"batch_size": 3}, {"batch_size": 0}, {"batch_tokens": 9}):
        same(Generator(model, replace(search, **batches)).generate(SOURCES), one_by_one)


@searches
def test_batching_changes_no_hypothesis_of_any_model_of_the_contract(make):
    search = replace(make(ratio=0.5, extra=5), batch_size=128)  # of all sources
    sources = [[4 + n // 4 % 4, 4 + n % 4, *[5] * (n % 7), 3] for n in range(40)]
    model = TableModel(8)
    together = Generator(model, search).generate(sources)
    (state,) = model.states  # rows that are done stay a while, until enough of them are
    assert 0 < len(state.kept) < len(state.rows_decoded) - 1
    same(together, Generator(TableModel(8), replace(search, batch_size=1)).generate(sources))
    assert len({hypotheses[0].ids for hypotheses in together}) > 20


@pytest.mark.parametrize(
    ("search", "rows"),
    [
        (Sampling(LengthLimit(0, 1), n_best=1_000), [4_000, 4_000, 1_000]),
        (BeamSearch(LengthLimit(0, 1), 600), [3_600, 1_800]),
        (MinimumBayesRisk(LengthLimit(0, 1), samples=900), [3_600, 3_600, 900]),
        (GreedySearch(LengthLimit(0, 1)), [9]),
    ],
)
@pytest.mark.parametrize("batch_size", [0, 128])
def test_a_batch_has_at_most_so_many_hypotheses_of_all_its_sources(search, rows, batch_size):
    model = TableModel(8)
    Generator(model, replace(search, batch_size=batch_size, workers=1)).generate([[4, 5, 3]] * 9)
    assert [state.rows_decoded[0] for state in model.states] == rows


@searches
def test_every_sentence_has_a_limit_from_its_own_length(make):
    model = TableModel(7, never_ends)
    found = Generator(model, make(ratio=1.5, extra=2)).generate(SOURCES)
    for source, hypotheses in zip(SOURCES, found):
        expected = int(len(source) * 1.5) + 2 if source else 0
        assert {len(hypothesis.ids) for hypothesis in hypotheses} == {expected}


@searches
def test_a_models_own_limit_ends_every_sentence(make):
    model = TableModel(7, never_ends, longest=8)
    found = Generator(model, make(ratio=2.0, extra=5)).generate(SOURCES)
    lengths = [{len(h.ids) for h in hypotheses} for hypotheses in found]
    assert lengths == [{8} if source else {0} for source in SOURCES]


@searches
def test_no_hypothesis_is_shorter_than_the_minimum(make):
    model = TableModel(7, lambda source, prefix: [0.0, 0, 0, 6.0, 1, 0, 0])
    found = Generator(model, make(ratio=1.0, extra=9, minimum=4)).generate(SOURCES)
    for source, hypotheses in zip(SOURCES, found):
        assert not source or min(len(h.ids) for h in hypotheses) == 4


def test_the_limit_is_never_below_one_nor_below_the_minimum():
    sizes = torch.tensor([2, 3])
    assert LengthLimit(0.0, 0).of(sizes, None).tolist() == [1, 1]
    assert LengthLimit(0.0, 0, 3).of(sizes, None).tolist() == [3, 3]
    assert LengthLimit(1.5, 2).of(sizes, None).tolist() == [5, 6]
    assert LengthLimit(1.5, 2).of(sizes, 5).tolist() == [5, 5]


@searches
def test_an_empty_source_gets_one_empty_hypothesis_and_costs_nothing(make):
    model = TableModel(7)
    assert Generator(model, make()).generate([[], []]) == [[Hypothesis((), 0.0, 0.0)]] * 2
    assert Generator(model, make()).generate([]) == []
    assert model.states == []


@searches
def test_a_source_past_the_models_limit_is_refused_in_words_before_any_work(make):
    model = TableModel(7, longest=6)
    with pytest.raises(UserError) as caught:
        Generator(model, make()).generate(SOURCES)
    assert str(caught.value) == (
        "source 4 has 7 tokens, but this model reads at most 6; shorten it, or train with a larger "
        "position.max_length"
    )
    assert model.states == []


@searches
def test_sentences_that_are_done_leave_the_batch(make):
    lengths = {4: 1, 5: 3, 6: 9}  # the source's first token says after how many tokens it ends

    def scripted(source, prefix):
        ends = len(prefix) + 1 >= lengths[source[0]]
        return [-1e4, -1e4, -1e4, 9.0, -9.0, -9.5] if ends else [-1e4, -1e4, -1e4, -1e4, 1.0, 0.9]

    model = TableModel(6, scripted)
    found = Generator(model, make(ratio=0, extra=9)).generate([[4, 3], [5, 3], [6, 3], [4, 4]])
    assert [len(hypotheses[0].ids) for hypotheses in found] == [0, 2, 8, 0]
    (state,) = model.states
    rows = [count // state.beams for count in state.rows_decoded]
    assert rows[0] == 4
    assert rows[-1] == 1
    assert rows == sorted(rows, reverse=True)
    assert [len(kept) for kept in state.kept] == [2, 1]


@searches
def test_it_stops_when_every_sentence_is_done(make):
    model = TableModel(5, lambda source, prefix: [-1e4, -1e4, -1e4, 30.0, 0.0])
    Generator(model, make(ratio=9, extra=9)).generate([[4, 3], [4, 4]])
    assert len(model.states[0].rows_decoded) <= 3


def test_batches_hold_no_more_than_they_may_longest_first():
    def rows(**limits):
        model = TableModel(7, never_ends)
        Generator(model, GreedySearch(LengthLimit(0, 1), **limits)).generate(SOURCES)
        return [[len(source) for source in state.sources] for state in model.states]

    assert rows() == [[7, 4, 4, 3, 2, 2]]
    assert rows(batch_size=4) == [[7, 4, 4, 3], [2, 2]]
    assert rows(batch_tokens=8) == [[7], [4, 4], [3, 2], [2]]
    assert rows(batch_tokens=8, batch_size=1) == [[7], [4], [4], [3], [2], [2]]
    assert rows(batch_tokens=1) == [[7], [4], [4], [3], [2], [2]]


def test_large_batches_are_for_many_sources_so_that_processes_can_share_them():
    def sizes(sources, batch_size):
        model = TableModel(7, never_ends)
        search = GreedySearch(LengthLimit(0, 1))
        Generator(model, replace(search, batch_size=batch_size, workers=1)).generate(
            [[3]] * sources
        )
        return [len(state.sources) for state in model.states]

    assert sizes(300, 256) == [128, 128, 44]
    assert sizes(3_000, 256) == [188] * 15 + [180]
    assert sizes(300, 64) == [64] * 4 + [44]
    assert sizes(300, 0) == [300]


@pytest.mark.parametrize("training", [True, False])
def test_generation_drops_nothing_and_leaves_the_models_mode_as_it_was(training):
    model = make_transformer(position=POSITIONS["rope"], dropout=0.5)
    expected = Generator(model, GreedySearch()).generate(SOURCES)
    model.train(training)
    assert Generator(model, GreedySearch()).generate(SOURCES) == expected
    assert model.training is training
    assert all(hypothesis.ids.count(EOS) == 0 for (hypothesis,) in expected)


def test_progress_over_windows_is_told_in_sources():
    told, windows = [], [[[4, 3]], [[4, 4, 3]] * 5, [[5, 3]] * 2, [[]]]
    generator = Generator(TableModel(7), GreedySearch(LengthLimit(), batch_size=2))
    found = generator.generate_windows(windows, progress=lambda *at: told.append(at))
    assert len(found) == 4
    # of the eight windows that hold something
    assert [(done, total) for done, total, _ in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    single = generator.generate([window for source in windows for window in source])
    assert sum(tokens for *_, tokens in told) == sum(len(one.ids) + 1 for [one] in single[:8])
