"""Beam search against exhaustive search and against a search written the long way."""

import math

import pytest
import torch

from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit
from seqattn.tokens import EOS
from tests.builders import HEADS, POSITIONS, heads, make_transformer
from tests.generation.table_model import TableModel

SOURCES = [[4, 5, 3], [5, 3], [4, 4, 5, 5, 3], [5, 4, 3]]


def exhaustive(following, most, alpha):
    """Every hypothesis of at most `most` tokens, best first: (ids, score, log-probability)."""
    found = []

    def extend(prefix, total):
        for token, log_probability in enumerate(following(prefix)):
            if log_probability == -math.inf:
                continue
            length, sum_ = len(prefix) + 1, total + log_probability
            if token == EOS:
                found.append((prefix, sum_ / length**alpha, sum_))
            elif length == most:
                found.append(((*prefix, token), sum_ / length**alpha, sum_))
            else:
                extend((*prefix, token), sum_)

    extend((), 0.0)
    return sorted(found, key=lambda hypothesis: -hypothesis[1])


def the_long_way(following, beams, most, alpha, early):
    """Beam search of one sentence in lists, all candidates sorted; no early end unless `early`."""
    live, done = [((), 0.0)], []
    for length in range(1, most + 1):
        ranked = sorted(
            ((p, t, total + s) for p, total in live for t, s in enumerate(following(p))),
            key=lambda candidate: -candidate[2],
        )[: 2 * beams]
        ended = [(p, s) for p, t, s in ranked[:beams] if t == EOS]
        done += [(p, s / length**alpha, s) for p, s in ended]
        live = [((*p, t), s) for p, t, s in ranked if t != EOS and s > -math.inf][:beams]
        if length == most:
            done += [(p, s / length**alpha, s) for p, s in live]
        if early and len(done) >= beams:
            break
    return sorted(done, key=lambda hypothesis: -hypothesis[1])


def assert_same(found, expected):
    assert [hypothesis.ids for hypothesis in found] == [ids for ids, _, _ in expected]
    for hypothesis, (_, score, log_probability) in zip(found, expected):
        assert hypothesis.score == pytest.approx(score, abs=1e-5)
        assert hypothesis.log_probability == pytest.approx(log_probability, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("n_best", [1, 7])
def test_a_beam_wide_enough_finds_what_exhaustive_search_finds(alpha, n_best):
    model = TableModel(6)
    limit = LengthLimit(ratio=0.0, extra=3)
    search = BeamSearch(limit, 150, n_best, alpha, early_stopping=False)
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        expected = exhaustive(lambda p, s=source: model.following(s, p), 3, alpha)
        assert_same(found, expected[:n_best])


@pytest.mark.parametrize("beams", [1, 2, 3, 5])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_narrow_beam_finds_what_the_long_way_finds(beams, early, alpha):
    model = TableModel(7)
    search = BeamSearch(LengthLimit(1.0, 4), beams, beams, alpha, early)
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        expected = the_long_way(
            lambda p, s=source: model.following(s, p), beams, len(source) + 4, alpha, early
        )
        assert_same(found, expected[:beams])


def test_a_beam_of_one_finds_what_greedy_search_finds():
    for model in (TableModel(9), make_transformer(position=POSITIONS["learned"])):
        limit = LengthLimit(1.0, 5)
        one = Generator(model, BeamSearch(limit, beam_size=1)).generate(SOURCES)
        greedy = Generator(model, GreedySearch(limit)).generate(SOURCES)
        for (beam,), (best,) in zip(one, greedy):
            assert beam.ids == best.ids
            assert beam.score == pytest.approx(best.score, abs=1e-5)


@pytest.mark.parametrize("early", [True, False])
def test_the_n_best_are_distinct_sorted_and_scored_as_a_full_pass_scores_them(early):
    model = make_transformer(heads(HEADS, 1), POSITIONS["rope"])
    search = BeamSearch(LengthLimit(1.0, 6), 6, 6, 0.7, early)
    for source, found in zip(SOURCES, Generator(model, search).generate(SOURCES)):
        assert len(found) == 6
        assert len({hypothesis.ids for hypothesis in found}) == 6
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in found:
            ended = [*hypothesis.ids, EOS][: len(source) + 6]
            with torch.inference_mode():
                logits = model(torch.tensor([source]), torch.tensor([[2, *ended[:-1]]]))[0]
            total = logits.log_softmax(-1).gather(1, torch.tensor(ended)[:, None]).sum().item()
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
            assert hypothesis.score == pytest.approx(total / len(ended) ** 0.7, abs=1e-4)


def test_the_end_counts_only_among_the_k_best_candidates():
    table = {(): [0, 0, 0, 1.0, 5.0, 4.0], (4,): [0, 0, 0, 9, 0, 0], (5,): [0, 0, 0, 9, 0, 0]}
    model = TableModel(6, lambda source, prefix: table.get(prefix, [0.0] * 6))
    (found,) = Generator(model, BeamSearch(LengthLimit(0, 2), 2, 2)).generate([[4]])
    assert [hypothesis.ids for hypothesis in found] == [(4,), (5,)]  # and not the empty one


def test_more_hypotheses_than_the_vocabulary_allows_are_not_made_up():
    search = BeamSearch(LengthLimit(0.0, 1), 9, 9, early_stopping=False)
    (found,) = Generator(TableModel(6), search).generate([[4, 3]])
    assert sorted(hypothesis.ids for hypothesis in found) == [(), (1,), (2,), (4,), (5,)]
    assert all(math.isfinite(hypothesis.score) for hypothesis in found)
