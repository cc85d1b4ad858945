"""Intervals, tests and groups of `compare`: equal to references, and true in simulated studies."""

import itertools
import math

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from seqattn.extras.compare.multiple_comparisons import groups, holm
from seqattn.metrics.qa import AnswerScorer
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.significance import (
    SeedVariance,
    SentenceCounts,
    difference,
    seed_interval,
    sentence_tests,
    student_p,
    student_quantile,
)
from seqattn.metrics.text import TextScorer
from tests.metrics.simulated_study import (
    World,
    difference_coverage,
    seed_coverage,
    sentence_test_levels,
)

REFERENCES = [
    ["the old man reads a book", "an old man is reading"],
    ["a dog sees two small birds near the tree"],
    ["she buys some bread and an apple today"],
    ["the child runs home because it rains"],
]
FIRST = [
    "the old man reads books",
    "a dog sees two birds near the tree",
    "she buys bread and an apple",
    "the child runs home because it rains",
]
SECOND = ["the man", "a dog sees a tree", "she has an apple today", "the child is at home"]
SCORERS = [TextScorer(), RougeScorer(resamples=0), AnswerScorer()]


def means(*rows):
    """A metric of each seed whose sentences score as the rows say."""
    return [SentenceCounts.of_means(["m"], np.array(row, float)[:, None])[0] for row in rows]


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: type(one).__name__)
def test_counts_of_sentences_add_up_to_the_score_of_the_corpus(scorer):
    scores = {one.name: one.value for one in scorer.score(FIRST, REFERENCES)}
    counts = {one.name: one for one in scorer.sentences(FIRST, REFERENCES)}
    assert counts.keys() == scores.keys()
    for name, one in counts.items():
        assert one.score == pytest.approx(scores[name], rel=1e-12)
        assert len(one.each) == 4


def test_influence_is_what_the_corpus_loses_without_a_sentence():
    bleu = TextScorer().sentences(FIRST, REFERENCES)[0]
    for row in range(4):
        rest = [number for number in range(4) if number != row]
        texts, references = ([column[n] for n in rest] for column in (FIRST, REFERENCES))
        without = TextScorer().score(texts, references)[0].value
        assert bleu.influence[row] == pytest.approx(3 * (bleu.score - without))


@pytest.mark.parametrize("t", [0.3, 1.7, 12.706, 318.31])
def test_students_p_is_that_of_its_closed_forms(t):
    assert student_p(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9)
    assert student_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6)


def test_students_quantiles_are_those_of_its_tables():
    table = {1: 12.7062, 2: 4.3027, 4: 2.7764, 30: 2.0423}
    assert {df: round(student_quantile(df), 4) for df in table} == table
    assert student_quantile(1e6) == pytest.approx(1.95997, abs=1e-4)


def test_an_interval_of_seeds_is_students_and_one_seed_has_none():
    assert seed_interval([20.0, 21.0, 22.0]) == pytest.approx((21 - 2.48414, 21 + 2.48414))
    assert seed_interval([20.0]) is None


def test_where_sentences_do_not_vary_the_difference_is_welchs():
    first, second = [30.0, 33.0, 31.0], [28.0, 29.0]
    found = difference(means(*([x] * 5 for x in first)), means(*([x] * 5 for x in second)))
    parts = [np.var(first, ddof=1) / 3, np.var(second, ddof=1) / 2]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 1)
    assert found.value == pytest.approx(31.3333333 - 28.5)
    assert found.p == pytest.approx(student_p(found.value / sum(parts) ** 0.5, df))
    half = student_quantile(df) * sum(parts) ** 0.5
    assert found.interval == pytest.approx((found.value - half, found.value + half))


def test_where_seeds_do_not_vary_the_difference_is_that_of_paired_sentences():
    first, second = [40.0, 10.0, 35.0, 22.0, 9.0], [38.0, 12.0, 30.0, 15.0, 4.0]
    found = difference(means(first, first), means(second, second, second))
    gaps = np.subtract(first, second)
    assert found.p == pytest.approx(student_p(gaps.mean() / (gaps.var(ddof=1) / 5) ** 0.5, 4))


def test_what_seeds_and_sentences_both_count_is_counted_once():
    chance = np.random.default_rng(3)
    scores = chance.normal(50, 9, 7) + chance.normal(0, 2, (3, 1)) + chance.normal(0, 5, (3, 7))
    found = difference(means(*scores), means([0.0] * 7, [0.0] * 7))
    rows, columns = scores.mean(1), scores.mean(0)
    rest = scores - rows[:, None] - columns + scores.mean()
    of_both = (rest**2).sum() / (2 * 6)  # mean squares of a two-way table
    of_sentences = (3 * columns.var(ddof=1) - of_both) / 3
    assert of_sentences > 10
    parts = [(rows.var(ddof=1) / 3, 2), (of_sentences / 7, 6)]
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / free for part, free in parts)
    half = student_quantile(df) * variance**0.5
    assert found.interval == pytest.approx((found.value - half, found.value + half))


def test_a_pooled_variance_is_that_within_all_systems_with_their_degrees_of_freedom():
    rows = [30.0, 33.0, 31.0], [28.0, 29.0], [5.0, 1.0], [70.0]
    systems = [means(*([x] * 5 for x in row)) for row in rows]
    pooled = SeedVariance.of(systems)
    assert pooled == (pytest.approx((14 / 3 + 0.5 + 8) / 4), 4)
    found = difference(systems[0], systems[1], pooled)
    t = found.value / (pooled.value * (1 / 3 + 1 / 2)) ** 0.5
    assert found.p == pytest.approx(student_p(t, 4))


def test_one_seed_gives_a_difference_and_no_interval():
    assert difference(means([1, 2]), means([0, 2], [1, 2])) == (0.25, None, None)


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: type(one).__name__)
def test_the_same_outputs_do_not_differ(scorer):
    for one in scorer.sentences(FIRST, REFERENCES):
        assert difference([one, one], [one, one]) == (0.0, (0.0, 0.0), 1.0)
        assert sentence_tests({"a": [one], "b": [one]}, 100, 100)["a", "b"] == (1.0, 1.0)


@pytest.mark.parametrize(("place", "metric"), [(0, BLEU()), (1, CHRF())])
def test_tests_of_sentences_are_sacrebleus_on_the_texts(place, metric):
    systems = {"a": FIRST * 9, "b": SECOND * 9, "c": [*FIRST * 5, *SECOND * 4]}
    references = REFERENCES * 9
    counts = {n: [TextScorer().sentences(x, references)[place]] for n, x in systems.items()}
    found = sentence_tests(counts, 200, 300)
    streams = [list(row) for row in itertools.zip_longest(*references)]
    for column, (kind, samples) in enumerate((("bs", 200), ("ar", 300))):
        test = PairedTest(list(systems.items()), {"m": metric}, streams, kind, samples)
        _, (_, *others) = test()[1].values()
        expected = [one.p_value for one in others]
        assert [found["a", name][column] for name in "bc"] == pytest.approx(expected)


@pytest.mark.parametrize(("differing", "least"), [(1, 1.0), (3, 0.25)])
def test_few_sentences_that_differ_prove_little(differing, least):
    """All signs of so few gaps are as likely, and two of them give this gap or its negative."""
    texts = {"a": FIRST, "b": [*SECOND[:differing], *FIRST[differing:]]}
    assert texts["a"] != texts["b"]
    counts = {n: TextScorer().sentences(x, REFERENCES) for n, x in texts.items()}
    for metric in (0, 1):
        tests = sentence_tests({n: [one[metric]] for n, one in counts.items()}, 100, 100)
        assert min(tests["a", "b"]) >= least


def test_tests_of_sentences_take_the_mean_of_seeds():
    first, second = (TextScorer().sentences(one, REFERENCES)[0] for one in (FIRST, SECOND))
    found = sentence_tests({"a": [first, second], "b": [second, first]}, 100, 100)
    assert found["a", "b"] == (1.0, 1.0)


def test_randomization_is_that_of_all_swaps():
    first, second = [5.0, 9.0, 7.0, 8.0, 6.0, 9.5], [4.0, 8.8, 7.5, 5.0, 5.0, 9.0]
    gaps = np.subtract(first, second)
    swaps = [abs(np.dot(gaps, signs)) for signs in itertools.product((1, -1), repeat=6)]
    exact = np.mean([one > abs(gaps.sum()) - 1e-5 for one in swaps])
    systems = {"a": means(first), "b": means(second)}
    found = sentence_tests(systems, 100, 20_000)["a", "b"].randomization
    assert found == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5 + 1e-4)


def test_answers_that_tie_count_against_a_difference():
    systems = {"a": means([100] * 9), "b": means([100] * 5 + [0] * 4)}  # 4 questions, one way
    found = sentence_tests(systems, 100, 8000)["a", "b"].randomization
    assert found == pytest.approx(2 / 2**4, abs=0.011)  # what a sign test gives, four deviations


def test_holms_correction_is_the_papers():
    p = {("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03, ("a", "d"): 0.005}
    expected = {("a", "b"): 0.03, ("a", "c"): 0.06, ("b", "c"): 0.06, ("a", "d"): 0.02}
    assert holm(p) == pytest.approx(expected)
    assert holm({("a", "b"): 0.7, ("a", "c"): 0.9}) == {("a", "b"): 1.0, ("a", "c"): 1.0}


def test_groups_overlap_where_likeness_is_no_chain():
    assert groups("abc", {("a", "c")}) == [["a", "b"], ["b", "c"]]
    assert groups("abc", set()) == [["a", "b", "c"]]
    assert groups("abc", {("b", "a"), ("c", "a"), ("c", "b")}) == [["a"], ["b"], ["c"]]
    assert groups("abcd", {("a", "d"), ("b", "c")}) == [["a", "b"], ["a", "c"], ["b", "d"],
                                                       ["c", "d"]]  # fmt: skip


def test_one_sentence_says_nothing_of_others_however_alike_the_seeds_are():
    good, bad = (SentenceCounts.of_means(["EM"], np.array([[x]]))[0] for x in (100.0, 0.0))
    with np.errstate(all="raise"):
        assert difference([good, good], [bad, bad]) == (100.0, None, 1.0)


def test_intervals_of_a_small_study_hold_the_true_difference():
    covered, found = difference_coverage(World(0.3, 0.1, sentences=20), 100)
    assert 0.90 <= covered <= 0.99  # 95 %, with two binomial deviations of 100 draws
    assert found > 0.1


def test_with_seeds_that_vary_tests_of_sentences_alone_err_too_often():
    world = World(0, 0.3, (1, 1), sentences=100)
    assert sentence_test_levels(world, 25).min() > 0.2  # of a level of 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize("seeds", [(2, 2), (3, 3), (3, 5)])
@pytest.mark.parametrize("spread", [0.0, 0.05, 0.15])
def test_intervals_hold_and_tests_keep_their_level_in_a_study(spread, seeds):
    covered, _ = difference_coverage(World(0.2, spread, seeds), 1000)
    assert 0.93 <= covered <= 0.985  # two seeds that do not vary: Welch's is too careful
    _, wrong = difference_coverage(World(0, spread, seeds), 1000)
    assert wrong <= 0.05 + 2 * 0.007


@pytest.mark.exhaustive
def test_a_pooled_variance_keeps_the_level_where_seeds_vary_alike():
    covered, wrong = difference_coverage(World(0, 0.1), 1000, pooled_with=4)
    assert 0.93 <= covered <= 0.98
    assert wrong <= 0.05 + 2 * 0.007


@pytest.mark.exhaustive
def test_intervals_of_a_mean_over_seeds_hold_it_in_a_study():
    assert 0.93 <= seed_coverage(World(0, 0.1), 400) <= 0.97


@pytest.mark.exhaustive
def test_where_seeds_do_not_vary_randomization_keeps_its_level_and_the_bootstrap_does_not():
    bootstrap, randomization = sentence_test_levels(World(0, 0.0, (1, 1)), 400)
    assert randomization <= 0.05 + 2 * 0.011
    assert 0.07 <= bootstrap <= 0.14
