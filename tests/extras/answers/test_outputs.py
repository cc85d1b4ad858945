"""Answers of a split are written by their questions, with what the search found."""

import json
from dataclasses import replace

import pytest

from seqattn.extras.answers.outputs import Answers
from seqattn.extras.answers.span_batch import Questions
from seqattn.extras.answers.span_search import Answer, Answered

ROWS = Questions(["?"] * 3, [], [["ein"], [], []], ["a", "b", "c"], ["ein Ö"] * 3)
FOUND = [
    Answered([Answer("ein", 0, 3, 0.75), Answer("Ö", 4, 5, 0.125)], 0.125),
    Answered([Answer("Ö", 4, 5, 0.5)], 0.5),
    Answered([], 1.0),
]


def lines(file):
    return file.read_text(encoding="utf-8").splitlines()


def test_answers_are_written_by_their_questions_with_what_the_search_found(tmp_path):
    made = Answers.of(ROWS, FOUND, 1.5)
    made.write(tmp_path)
    assert json.loads((tmp_path / "predictions.json").read_text()) == {
        "a": "ein",
        "b": "Ö",
        "c": "",
    }
    assert json.loads((tmp_path / "no_answer.json").read_text()) == {"a": 0.125, "b": 0.5, "c": 1.0}
    first, second, third = map(json.loads, lines(tmp_path / "answers.jsonl"))
    assert [one["text"] for one in first["answers"]] == ["ein", "Ö"]
    assert second == {
        "id": "b",
        "answers": [{"text": "Ö", "start": 4, "end": 5, "probability": 0.5}],
    }
    assert third == {"id": "c", "answers": []}
    assert made.table() == {"questions": "3 (2.0 per second)", "unanswered": "1"}


@pytest.mark.parametrize(
    ("answers", "threshold"),
    [
        ([["ein"], [], []], 0.125),  # the second is better left
        ([["ein"], ["Ö"], []], 0.5),
        ([[], [], []], 0.0),  # all are, and no probability lies below 0
    ],
)
def test_the_threshold_that_a_search_gets_is_one_that_it_takes(answers, threshold):
    made = Answers.of(replace(ROWS, references=answers), FOUND, 1.0)
    assert made.best_threshold() == threshold
    texts = ["" if not one else one[0] for one in answers]
    assert made.within(threshold).texts == texts
