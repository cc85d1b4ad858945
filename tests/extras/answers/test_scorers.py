"""Answers are scored as SQuAD's own scripts score them."""

import random

import pytest
import torch
from torchmetrics.functional.text import squad

from seqattn.extras.answers.scorers import (
    AnswerScorer,
    QaScorer,
    best_threshold,
    exact_match,
    f1,
    normalize,
)
from seqattn.metrics.text import scorer_notices
from tests.data.source_helpers import refusal
from tests.metrics import test_significance as significance
from tests.metrics.joined import joined
from tests.metrics.test_scripts import CHINESE, JAPANESE, THAI
from tests.metrics.test_text import assert_unchanged_by_nothing

PARTS = [
    "the",
    "a",
    "An",
    "cat",
    "Cat",
    "cat's",
    "cats",
    "3.5",
    "3,5",
    "35",
    "\u2013",
    "-",
    "...",
    "!",
]
PARTS += ["Café", "cafe\u0301", "ÄRGER", "ß", "李", "\u00a0", "\u2028", "\t", "“cat”", "U.S.", "us"]
PARTS += ["theatre", "a.", "the-end", "theend", "$5", "5", "cat cat", "İ", "ﬁsh", "fish", ""]
BY_HAND = [
    ("", ["cat"]),
    ("cat", ["cat."]),
    ("the cat", ["cat"]),
    ("cat cat cat", ["cat"]),
    ("cat", ["cat cat cat"]),
    ("a b a", ["a", "b", "the b"]),
    ("  cat \n", ["cat"]),
    ("!!!", ["cat", "dog"]),
    ("dog", ["cat", "the dog runs"]),
    ("the theatre", ["theatre"]),
]


def drawn(count=200, seed=4):
    """Predictions with their answers, each answer with a word that normalization leaves."""
    source = random.Random(seed)

    def text(least):
        return " ".join(source.choices(PARTS, k=source.randint(least, 4)))

    rows = list(BY_HAND)
    while len(rows) < count:
        answers = [text(1) for _ in range(source.randint(1, 3))]
        prediction = source.choice([text(0), answers[-1], answers[0] + " cat"])
        if all(normalize(answer) for answer in answers):
            rows.append((prediction, answers))
    return rows


def test_exact_match_and_f1_are_those_of_torchmetrics():
    for prediction, answers in drawn():
        theirs = squad(
            [{"id": "x", "prediction_text": prediction}],
            [{"id": "x", "answers": {"text": answers, "answer_start": [0] * len(answers)}}],
        )
        ours = [100 * exact_match(prediction, answers), 100 * f1(prediction, answers)]
        expected = [float(theirs["exact_match"]), float(theirs["f1"])]
        assert ours == pytest.approx(expected, rel=1e-6), (prediction, answers)


@pytest.mark.parametrize(
    ("prediction", "answers", "match", "overlap"),
    [
        ("", [], 1, 1),
        ("cat", [], 0, 0),
        ("The", [], 1, 1),
        ("", ["the"], 1, 1),
        ("cat", ["the", "a cat"], 1, 1),
        ("", ["the", "a cat"], 0, 0),
        ("New York City", ["york"], 0, 0.5),
        ("cat cat dog", ["cat cat cat cat"], 0, 4 / 7),
        ("x y", ["y z", "x y z"], 0, 0.8),
    ],
)
def test_figures_by_hand(prediction, answers, match, overlap):
    assert exact_match(prediction, answers) == match
    assert f1(prediction, answers) == pytest.approx(overlap)


QUESTIONS = {
    "a": ["cat"],
    "b": ["a dog", "dogs"],
    "c": [],
    "d": ["red hat"],
    "e": [],
    "f": ["x"],
    "g": [],
}
PREDICTIONS = {"a": "cat", "b": "wolf", "c": "bird", "d": "hat", "e": "", "f": "x", "g": "z"}
NO_ANSWER = {"a": 0.1, "b": 0.6, "c": 0.7, "d": 0.4, "e": 0.4, "f": 0.9, "g": 0.4}


def values(scores):
    return {score.name: score.value for score in scores}


def test_a_set_with_unanswerable_questions_is_scored_in_three_parts():
    found = values(QaScorer().score({**PREDICTIONS, "other": "?"}, QUESTIONS))
    assert found == pytest.approx(
        {
            "EM": 100 * 3 / 7,
            "F1": 100 * (3 + 2 / 3) / 7,
            "HasAns EM": 50,
            "HasAns F1": 100 * (2 + 2 / 3) / 4,
            "NoAns EM": 100 / 3,
            "NoAns F1": 100 / 3,
        }
    )
    answerable = {name: QUESTIONS[name] for name in "abdf"}
    assert values(QaScorer().score(PREDICTIONS, answerable)) == pytest.approx(
        {"EM": 50, "F1": 100 * (2 + 2 / 3) / 4}
    )


def test_a_threshold_leaves_what_lies_above_it_unanswered():
    found = values(QaScorer(0.6).score(PREDICTIONS, QUESTIONS, NO_ANSWER))
    # c is left, and right; f is left, and wrong
    assert found["EM"] == pytest.approx(100 * 3 / 7)
    assert found["NoAns EM"] == pytest.approx(100 * 2 / 3)
    assert found["HasAns F1"] == pytest.approx(100 * (1 + 2 / 3) / 4)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_threshold_is_that_of_trying_all(seed):
    source = random.Random(seed)
    names = [str(number) for number in range(30)]
    questions = {n: source.choice([[], ["cat"], ["red cat", "x"]]) for n in names}
    predictions = {n: source.choice(["", "cat", "red", "dog"]) for n in names}
    no_answer = {n: source.choice([0.0, 0.1, 0.25, 0.5, 1.0]) for n in names}

    def score(threshold):
        found = QaScorer(threshold).score(predictions, questions, no_answer)
        return values(found)["F1"]

    found = best_threshold(predictions, questions, no_answer)
    tried = [-1.0, 0.0, 0.1, 0.25, 0.5, 1.0]
    assert found.score == pytest.approx(max(map(score, tried)))
    assert found.value == min(t for t in tried if score(t) > found.score - 1e-9)


def test_of_thresholds_that_are_as_good_the_lowest_is_taken():
    questions = {"a": ["cat"], "b": ["dog"], "c": []}
    predictions = {"a": "cat", "b": "dog", "c": "cat"}  # answering b and c gains one, loses one
    found = best_threshold(predictions, questions, {"a": 0.1, "b": 0.5, "c": 0.5})
    assert (found.value, found.score) == (0.1, pytest.approx(200 / 3))


def test_batches_and_ranks_add_up_to_the_scorers_figures():
    rows = drawn()
    whole, left, right = (AnswerScorer().corpus() for _ in range(3))
    for metric, part in ((whole, rows), (left, rows[::3]), (right, rows[1::3] + rows[2::3])):
        for start in (0, 1, 5):
            stop = {0: 1, 1: 5, 5: None}[start]
            predictions, answers = zip(*part[start:stop], strict=True)
            metric.update(predictions, answers)
    joined(left, right)
    for name, value in whole.compute().items():
        torch.testing.assert_close(left.compute()[name], value)
    named = {str(place): row for place, row in enumerate(rows)}
    scores = QaScorer().score(
        {n: r[0] for n, r in named.items()}, {n: r[1] for n, r in named.items()}
    )
    theirs = values(scores)
    assert float(left.compute()["em"]) == pytest.approx(theirs["EM"])
    assert float(left.compute()["f1"]) == pytest.approx(theirs["F1"])


def test_the_signature_says_what_was_scored_and_how():
    import seqattn

    end = f"version:seqattn-{seqattn.__version__}"
    scores = QaScorer(0.25).score(PREDICTIONS, QUESTIONS, NO_ANSWER)
    assert {score.signature for score in scores} == {
        f"questions:7|unanswerable:3|answers:best|norm:squad|threshold:0.25|{end}"
    }
    [match, _] = QaScorer().score({"a": "x"}, {"a": ["x"]})
    assert match.signature == (
        f"questions:1|unanswerable:0|answers:best|norm:squad|threshold:none|{end}"
    )


def test_what_is_wrong_with_predictions_is_said():
    assert refusal(lambda: QaScorer().score({"a": "x"}, QUESTIONS)) == (
        "6 of 7 questions have no prediction, such as 'b'; is this the file of another split?"
    )
    assert refusal(lambda: QaScorer().score(PREDICTIONS, QUESTIONS, {"a": 0.5})).startswith(
        "6 of 7 questions have no no-answer probability, such as 'b'"
    )
    assert refusal(lambda: best_threshold(PREDICTIONS, QUESTIONS, {**NO_ANSWER, "c": -3.5})) == (
        "a no-answer probability must be in [0, 1], got -3.5 for 'c'"
    )
    assert refusal(lambda: QaScorer().score({}, {})) == ("there are no questions to score")


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI])
@pytest.mark.parametrize("scorer", [QaScorer(), AnswerScorer()], ids=["spans", "texts"])
def test_texts_that_no_space_splits_are_scored_as_whole_answers_and_that_is_said(scorer, text):
    [line] = scorer_notices(scorer, [[text], [text, text]])
    assert "whole answers" in line


def test_counts_of_sentences_are_as_those_of_other_scorers():
    significance.test_counts_of_sentences_add_up_to_the_score_of_the_corpus(AnswerScorer())
    significance.test_the_same_outputs_do_not_differ(AnswerScorer())
    assert_unchanged_by_nothing(AnswerScorer())
