"""Intervals, tests and groups of `compare`: equal to references, and true in simulated studies."""

import numpy as np
import pytest
from scipy import stats

from seqattn.extras.compare.multiple_comparisons import groups, holm
from seqattn.extras.compare.seed_statistics import SeedVariance, difference, seed_interval, within
from seqattn.metrics.significance import SentenceCounts
from tests.extras.compare.simulated_study import (
    World,
    difference_coverage,
    grouped_coverage,
    seed_coverage,
    sentence_test_levels,
)


def means(*rows):
    """A metric of each seed whose sentences score as the rows say."""
    return [SentenceCounts.of_means(["m"], np.array(row, float)[:, None])[0] for row in rows]


def test_the_same_scores_do_not_differ():
    one = means([30.0, 10.0, 25.0]) * 2
    assert difference(one, one) == (0.0, (0.0, 0.0), 1.0)


def test_an_interval_of_seeds_is_students_and_one_seed_has_none():
    assert seed_interval([20.0, 21.0, 22.0]) == pytest.approx((21 - 2.48414, 21 + 2.48414))
    assert seed_interval([20.0]) is None


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 99.0], (0, 100)),
        ([100.0, 100.0, 97.0], (94.70, 100)),
        ([0.0, 0.0, 3.0], (0, 5.30)),
        ([98.0, 104.0], (101 - 38.12, 101 + 38.12)),  # as error rates may be
        ([-1.0, 3.0], (1 - 25.41, 1 + 25.41)),
    ],
)
def test_an_interval_ends_where_scores_do(scores, expected):
    assert within(seed_interval(scores), scores) == pytest.approx(expected, abs=0.01)


def test_where_sentences_do_not_vary_the_difference_is_welchs():
    first, second = [30.0, 33.0, 31.0], [28.0, 29.0]
    found = difference(means(*([x] * 5 for x in first)), means(*([x] * 5 for x in second)))
    welch = stats.ttest_ind(first, second, equal_var=False)
    assert found.value == pytest.approx(31.3333333 - 28.5)
    assert found.p == pytest.approx(welch.pvalue)
    assert found.interval == pytest.approx(welch.confidence_interval())


def test_where_seeds_do_not_vary_the_difference_is_that_of_paired_sentences():
    first, second = [40.0, 10.0, 35.0, 22.0, 9.0], [38.0, 12.0, 30.0, 15.0, 4.0]
    found = difference(means(first, first), means(second, second, second))
    assert found.p == pytest.approx(stats.ttest_rel(first, second).pvalue)


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
    half = stats.t.ppf(0.975, df) * variance**0.5
    assert found.interval == pytest.approx((found.value - half, found.value + half))


def test_a_pooled_variance_is_that_within_all_systems_with_their_degrees_of_freedom():
    rows = [30.0, 33.0, 31.0], [28.0, 29.0], [5.0, 1.0], [70.0]
    systems = [means(*([x] * 5 for x in row)) for row in rows]
    pooled = SeedVariance.of(systems)
    assert pooled == (pytest.approx((14 / 3 + 0.5 + 8) / 4), 4)
    found = difference(systems[0], systems[1], pooled)
    t = found.value / (pooled.value * (1 / 3 + 1 / 2)) ** 0.5
    assert found.p == pytest.approx(2 * stats.t.sf(t, 4))


def test_one_seed_gives_a_difference_and_no_interval():
    assert difference(means([1, 2]), means([0, 2], [1, 2])) == (0.25, None, None)


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


def test_intervals_over_groups_hold_what_those_over_rows_miss():
    groups, rows = grouped_coverage(40, resamples=200)
    assert groups.min() >= 0.85
    assert rows.max() <= 0.7


@pytest.mark.exhaustive
def test_intervals_over_groups_hold_in_a_study():
    groups, rows = grouped_coverage(400)
    assert 0.89 <= groups.min() <= groups.max() <= 0.975  # 91.3 and 94.5 % of 1,000
    assert rows.max() <= 0.7
