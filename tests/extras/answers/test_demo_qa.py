"""The bundled stories and questions are what their README says."""

import json
import re

import pytest

from seqattn.extras.answers.scorers import exact_match, f1
from seqattn.extras.answers.squad import DemoQA
from tests.pages import ROOT

FOLDER = ROOT / "data" / "demo_qa"
PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def rows():
    source = DemoQA()
    return {part: list(source.load(part)) for part in PARTS}


def test_the_files_are_squads_and_need_no_mending():
    source = DemoQA()
    for part in PARTS:
        source.load(part)
        document = json.loads((FOLDER / f"{part}.json").read_text(encoding="utf-8"))
        assert (document["version"], list(document)) == ("1.1", ["version", "data"])
    assert source.notices() == []


def test_answers_are_whole_words_of_the_context(rows):
    for found in rows.values():
        for row in found:
            [text], [start] = row["answers"], row["starts"]
            words = re.compile(rf"\b{re.escape(text)}\b")
            assert words.match(row["context"], start), row


FORMS = {
    r"Where is (\w+)\?": r"{0} \w+ to the (\w+)\.",
    r"Who has the (\w+)\?": r"(\w+) (?:\w+ |picked up )the \w+ {0}\.|gave the {0} to (\w+)\.",
    r"What colour is the (\w+)\?": r"the (\w+) {0}\.",
    r"Who gave the (\w+) to \w+\?": r"Later (\w+) gave the {0} to",
    r"What did (\w+) give to (\w+)\?": r"{0} gave the (\w+) to {1}\.",
    r"What is the job of (\w+)\?": r"{0} is a (\w+)\.",
    r"Who is a (\w+)\?": r"(\w+) is a {0}\.",
    r"When did (\w+) get up\?": r"{0} got up at ([\w ]+)\.",
    r"What did (\w+) eat\?": r"{0} ate ([\w ]+)\.",
}
"""What a question asks, and what says so; the last place in reading order answers it."""


def test_every_answer_follows_from_the_last_sentence_that_tells_of_it(rows):
    for found in rows.values():
        for row in found:
            matches = [(re.fullmatch(q, row["question"]), told) for q, told in FORMS.items()]
            [(match, told)] = [(match, told) for match, told in matches if match]
            hits = re.findall(told.format(*match.groups()), row["context"])
            last = hits[-1] if isinstance(hits[-1], str) else "".join(hits[-1])
            assert row["answers"] == [last], row


def test_some_questions_need_the_reading_order(rows):
    twice = [
        row
        for row in rows["train"]
        if row["question"].startswith("Who has")
        and "gave the " + row["question"][12:-1] in row["context"]
    ]
    assert len(twice) > 100


@pytest.mark.parametrize("part", PARTS)
def test_the_sentence_nearest_to_the_question_does_badly(rows, part):
    def nearest(row):
        asked = set(re.findall(r"\w+", row["question"].lower()))
        sentences = row["context"].split(". ")
        return max(sentences, key=lambda s: len(asked & set(re.findall(r"\w+", s.lower()))))

    count = len(rows[part])
    assert 100 * sum(exact_match(nearest(row), row["answers"]) for row in rows[part]) / count < 1
    assert 100 * sum(f1(nearest(row), row["answers"]) for row in rows[part]) / count < 40
