"""Of samples the one that is most like all of them."""

from collections import Counter
from dataclasses import replace

import pytest

from seqattn.generation import Generator, Hypothesis, LengthLimit, MinimumBayesRisk, Sampling
from tests.generation.table_model import TableModel

LIMIT = LengthLimit(ratio=0, extra=6)


def f1(one, other, order):
    """The definition, two outputs at a time."""
    found = 0.0
    for n in range(1, order + 1):
        a, b = (Counter(x[i : i + n] for i in range(max(1, len(x) - n + 1))) for x in (one, other))
        found += 2 * sum((a & b).values()) / (sum(a.values()) + sum(b.values()))
    return found / order


@pytest.mark.parametrize("order", [1, 2, 4])
def test_an_output_scores_its_mean_likeness_to_all_samples(order, monkeypatch):
    drawn = []
    draw = Sampling.draw

    def noted(*args):
        drawn.extend(draw(*args))
        return drawn[-len(args[3]) :]

    monkeypatch.setattr(Sampling, "draw", noted)
    search = MinimumBayesRisk(LIMIT, n_best=40, samples=40, order=order, seed=5)
    found = Generator(TableModel(8), replace(search, workers=1)).generate([[4, 5, 3], [6, 3]])
    for ranked, samples in zip(found, drawn, strict=True):
        assert len(samples) == 40
        assert {one.ids for one in ranked} == {one.ids for one in samples}
        assert [one.score for one in ranked] == sorted((x.score for x in ranked), reverse=True)
        for one in ranked:
            mean = sum(f1(one.ids, other.ids, order) for other in samples) / len(samples)
            assert one.score == pytest.approx(mean, abs=1e-12)


def test_what_is_drawn_most_often_wins_where_outputs_have_nothing_in_common(monkeypatch):
    texts = [(4,), (5, 6), (7,), (5, 6), (), (8,)]
    samples = [Hypothesis(ids, 0.0, -1.0) for ids in texts]
    monkeypatch.setattr(Sampling, "draw", lambda *args: [samples])
    search = Generator(TableModel(8), MinimumBayesRisk(LIMIT, n_best=9, workers=1))
    ((best, *others),) = search.generate([[4, 3]])
    assert best.ids == (5, 6)
    assert best.score == pytest.approx(2 / 6)
    assert [one.score for one in others] == pytest.approx([1 / 6] * 4)
