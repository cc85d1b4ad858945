"""ROUGE is that of `rouge-score`, in batches, on ranks and over several references."""

import random

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer as Plain

from seqattn.metrics.rouge import KINDS, RougeScorer, novel_share
from tests.data.source_helpers import refusal
from tests.metrics.joined import joined

PARTS = ["the", "meeting", "meetings", "met", "was", "running", "runs", "3.5", "35", "U.S.", "-"]
PARTS += ["!", "\n", "\n\n", "Café", "Ärger", "李bc", "\u00a0", "\u2028", "_", "a_b", "it's", "x"]
BY_HAND = [
    ("", "a b"),
    ("a b", ""),
    ("", ""),
    ("...", "..."),
    ("\n", "a\nb"),
    ("b a", "a b"),
    ("a a a", "a"),
    ("the meeting was moved", "The meetings were moved."),
    ("one two\nthree four", "three four\none two"),
    ("İstanbul", "istanbul"),
]


def drawn(count=200, seed=1):
    source = random.Random(seed)

    def text():
        return " ".join(source.choices(PARTS, k=source.randint(0, 12)))

    rows = [(hypothesis, [reference]) for hypothesis, reference in BY_HAND]
    while len(rows) < count:
        rows.append((text(), [text() for _ in range(source.randint(1, 3))]))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("stemmer", [True, False])
def test_each_summary_is_scored_as_the_package_scores_it_alone(stemmer):
    hypotheses, references = drawn()
    plain = Plain(list(KINDS.values()), use_stemmer=stemmer)
    found = RougeScorer(stemmer).measures(hypotheses, references)
    for place, (hypothesis, texts) in enumerate(zip(hypotheses, references, strict=True)):
        each = [plain.score(text, hypothesis) for text in texts]
        best = [max(100 * s[kind].fmeasure for s in each) for kind in KINDS.values()]
        assert found[place].tolist() == best, (hypothesis, texts)


def test_the_corpus_has_the_mean_of_its_summaries_and_says_how():
    hypotheses, references = drawn()
    scores = RougeScorer(stemmer=False, resamples=7).score(hypotheses, references)
    means = RougeScorer(stemmer=False).measures(hypotheses, references).mean(0)
    assert [score.name for score in scores] == list(KINDS)
    assert [score.value for score in scores] == pytest.approx(means.tolist())
    assert {score.signature for score in scores} == {
        "nrefs:var|measure:f1|agg:mean|stem:no|lsum:lines|version:0.1.2"
    }
    single = RougeScorer().score(hypotheses, [texts[0] for texts in references])
    assert single[0].signature.startswith("nrefs:1|measure:f1|agg:mean|stem:yes|")
    listed = RougeScorer().score(hypotheses, [texts[:1] for texts in references])
    assert single == listed


def test_lines_are_the_sentences_of_lsum_alone():
    scores = RougeScorer().score(["one two\nthree four"], ["three four\none two"])
    assert [score.value for score in scores] == pytest.approx([100, 200 / 3, 50, 100])
    scores = RougeScorer().score(["one two three four"], ["three four one two"])
    assert [score.value for score in scores] == pytest.approx([100, 200 / 3, 50, 50])


def test_intervals_hold_95_of_100_means_of_other_corpora():
    generator = np.random.default_rng(3)
    words = [f"w{number}" for number in range(10)]

    def corpus(count):
        references = [" ".join(generator.choice(words, 6)) for _ in range(count)]
        hypotheses = [
            " ".join(w if generator.random() < 0.5 else "x" for w in text.split())
            for text in references
        ]
        return RougeScorer(resamples=200).score(hypotheses, references)[0]

    truth = 50  # each word is kept by chance, and lengths are equal
    held = [low <= truth <= high for low, high in (corpus(60).interval for _ in range(60))]
    assert 52 <= sum(held) <= 60


def test_an_interval_is_as_wide_as_1_96_standard_errors_on_either_side():
    hypotheses = ["red", "blue"] * 200
    low, high = RougeScorer(resamples=2000).score(hypotheses, ["red"] * 400)[0].interval
    assert (low, high) == pytest.approx((50 - 1.96 * 2.5, 50 + 1.96 * 2.5), abs=0.4)


def test_intervals_depend_on_the_seed_alone_and_may_be_left_out():
    hypotheses, references = drawn(40)
    first, again, other = (
        RougeScorer(resamples=50, seed=seed).score(hypotheses, references)[2].interval
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
    assert RougeScorer(resamples=0).score(hypotheses, references)[2].interval is None


def test_novelty_counts_n_grams_that_the_source_does_not_say():
    hypotheses = ["The red dog barks", "", "dog dog"]
    sources = ["the dog sees a red cat", "x", "dog"]
    references = [["a red cat", "the end"], ["y"], ["dog"]]
    scores = RougeScorer().score(hypotheses, references, sources)
    found = {score.name: score.value for score in scores[4:]}
    assert found == pytest.approx(
        {
            "novel 1-grams": 100 * 1 / 6,  # barks
            "novel 1-grams of references": 100 * 2 / 7,  # end, y
            "novel 2-grams": 100 * 4 / 4,  # the red, red dog, dog barks, dog dog
            "novel 2-grams of references": 100 * 1 / 3,  # the end
            "novel 3-grams": 100,
            "novel 3-grams of references": 0,
        }
    )
    assert novel_share([""], ["x"], 1) == 0


def test_batches_and_ranks_add_up_to_the_corpus():
    hypotheses, references = drawn()
    scorer = RougeScorer()
    left, right = scorer.corpus(), scorer.corpus()
    left.update(hypotheses[:1], references[:1])
    left.update(hypotheses[1:90], references[1:90])
    right.update(hypotheses[90:], references[90:])
    joined(left, right)
    whole = scorer.score(hypotheses, references)
    assert list(left.compute()) == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    found = [float(value) for value in left.compute().values()]
    assert found == pytest.approx([score.value for score in whole])
    left.reset()
    left.update(["a b"], ["a c"])
    assert float(left.compute()["rouge1"]) == pytest.approx(50)


def test_what_cannot_be_scored_is_refused():
    scorer = RougeScorer()
    assert refusal(lambda: scorer.score([], [])) == ("there are no summaries to score")
    assert refusal(lambda: scorer.score(["a", "b"], ["a"])) == (
        "references must have one entry per text, got 1 for 2 texts"
    )
    assert refusal(lambda: scorer.score(["a", "b"], [["a"], []])) == (
        "each text must have a reference, but row 2 has none"
    )
    assert refusal(lambda: scorer.score(["a"], ["a"], ["x", "y"])) == (
        "each summary must have a source, got 1 summaries and 2 sources"
    )
