"""Scores as sums over sentences, and tests of two systems on the same sentences."""

import itertools

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.significance import SentenceCounts, sentence_tests
from seqattn.metrics.text import TextScorer

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
SCORERS = [TextScorer(), RougeScorer(resamples=0)]


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


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: type(one).__name__)
def test_the_same_outputs_do_not_differ(scorer):
    for one in scorer.sentences(FIRST, REFERENCES):
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


def test_the_better_system_may_come_first_or_last():
    better, worse = means([5.0, 9.0, 7.0, 8.0]), means([4.0, 8.0, 7.5, 5.0])
    found = sentence_tests({"a": better, "b": worse}, 100, 100)["a", "b"]
    assert sentence_tests({"a": worse, "b": better}, 100, 100)["a", "b"] == found
    assert max(found) < 1


LABELS = list("abbacbdadbccbacdaabd")
COPIES = [(text, gold) for text, gold in zip(FIRST, REFERENCES) for _ in range(3)]


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda one: type(one).__name__)
def test_copies_of_a_sentence_in_one_group_say_no_more_than_the_sentence(scorer):
    texts, golds = zip(*COPIES)
    labels = [gold[0] for gold in golds]
    for alone, copied in zip(scorer.sentences(FIRST, REFERENCES), scorer.sentences(texts, golds)):
        grouped = copied.by_group(labels)
        assert len(grouped.counts) == 4
        assert grouped.score == pytest.approx(alone.score)
        assert grouped.influence == pytest.approx(alone.influence)
        assert grouped.interval() == pytest.approx(alone.interval())
        low, high = copied.interval()
        assert high - low < 0.8 * (alone.interval()[1] - alone.interval()[0])
        assert copied.by_group(None) is copied


def test_an_interval_is_that_of_all_draws_of_groups():
    """Of 27 draws of three groups, each takes more than 2.5 %: the ends are those of one group."""
    [one] = means([3.0, 9.0, 4.0, 8.0, 1.0])
    assert one.by_group(["a", "b", "a", "b", "c"]).interval() == (1.0, 8.5)
    assert one.by_group(["a"] * 5).interval() is None
    assert one.interval(resamples=0) is None


def test_tests_of_means_draw_and_exchange_whole_groups():
    """The gaps of groups are exchanged by sign, and drawn less the mean gap of their sentences."""
    chance = np.random.default_rng(5)
    first, second = chance.normal(6, 2, 20), chance.normal(5, 2, 20)
    systems = {"a": means(first), "b": means(second)}
    grouped = {name: [one.by_group(LABELS) for one in seeds] for name, seeds in systems.items()}
    found = sentence_tests(grouped, 20_000, 20_000)["a", "b"]
    gap = first - second
    groups = [[number for number, one in enumerate(LABELS) if one == name] for name in "abcd"]
    gaps = np.array([gap[rows].sum() for rows in groups])
    swaps = [abs(np.dot(gaps, signs)) for signs in itertools.product((1, -1), repeat=4)]
    rest = [(gap[rows] - gap.mean()).sum() for rows in groups]
    draws = [abs(sum(four)) for four in itertools.product(rest, repeat=4)]
    for p, sums in zip(found, (draws, swaps)):
        exact = np.mean(np.array(sums) >= abs(gap.sum()) - 1e-9)
        assert p == pytest.approx(exact, abs=4 * 0.5 / 20_000**0.5)
    assert sentence_tests(systems, 100, 2000)["a", "b"].randomization < 0.2 * found.randomization


def test_randomization_of_bleu_exchanges_whole_groups():
    """Of two groups, all exchanges keep the difference or turn it round."""
    systems = {"a": FIRST, "b": SECOND}
    counts = {
        name: [TextScorer().sentences(texts, REFERENCES)[0].by_group(["x", "x", "y", "y"])]
        for name, texts in systems.items()
    }
    assert sentence_tests(counts, 100, 100)["a", "b"].randomization >= 0.5
