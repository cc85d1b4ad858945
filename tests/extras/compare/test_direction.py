"""A metric of which less is better, in comparisons."""

import re

import numpy as np
import pytest

from seqattn.extras.compare.comparison_plots import Point, pareto_front
from seqattn.extras.compare.run_results import ComparedRun
from seqattn.extras.compare.system_statistics import judge
from seqattn.metrics.significance import SentenceCounts


def compared(values, lower):
    """A system's runs, which have these errors of sentences."""
    counts = [SentenceCounts.of_means(["TER"], np.array(one)[:, None])[0] for one in values]
    return [SentenceCounts(one.name, one.counts, one.compute, lower) for one in counts]


@pytest.mark.parametrize("lower", [False, True])
def test_the_best_system_comes_first_and_is_said_to_be(lower):
    class Run:
        def __init__(self, counts):
            self.sentences, self.labels = {"TER": counts}, None
            self.results = ComparedRun.__new__(ComparedRun)
            object.__setattr__(self.results, "scores", {"TER": type("", (), {"signature": ""})})

    chance = np.random.default_rng(0)
    low = [chance.normal(20, 0.1, 50) for _ in range(3)]
    high = [chance.normal(40, 0.1, 50) for _ in range(3)]
    systems = {
        name: [Run(one) for one in compared(values, lower)]
        for name, values in (("low", low), ("high", high))
    }
    [found] = judge(systems)
    first, second = ("low", "high") if lower else ("high", "low")
    assert list(found.systems) == [first, second]
    [line] = found.words
    assert line.startswith(f"TER: {first} is {'below' if lower else 'above'} {second} by ")
    size, low, high = map(float, re.findall(r"\d+\.\d\d\b", line)[:3])
    assert low < size < high
    assert size == pytest.approx(20, abs=0.5)
    assert found.pairs[0].difference * (-1 if lower else 1) > 0


def test_the_front_of_errors_goes_down():
    systems = {
        "cheap": (1.0, Point(0, 30.0)),
        "bad": (2.0, Point(0, 35.0)),
        "dear": (3.0, Point(0, 20.0)),
    }
    assert pareto_front(systems, lower=True) == ["cheap", "dear"]
    assert pareto_front(systems) == ["cheap", "bad"]
