"""The bundled stories and questions are what their generator and their README say."""

import json
import re

import pytest

from seqattn.data.squad import DemoQA
from seqattn.metrics.qa import exact_match, f1
from tests.data.generators import DATA, generator_of

FOLDER = DATA / "demo_qa"
PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def generator():
    with generator_of("qa") as module:
        yield module


@pytest.fixture(scope="module")
def rows():
    source = DemoQA()
    return {part: list(source.load(part)) for part in PARTS}


def test_stories_are_short_and_as_many_as_stated(generator, rows):
    stories = {part: {row["context"] for row in found} for part, found in rows.items()}
    assert {part: len(found) for part, found in stories.items()} == generator.SIZES
    assert not stories["train"] & (stories["val"] | stories["test"])
    words = [len(story.split()) for found in stories.values() for story in found]
    assert min(words) >= 40
    assert max(words) <= 65
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 620_000


def test_the_files_are_squads_and_need_no_mending():
    source = DemoQA()
    for part in PARTS:
        source.load(part)
        document = json.loads((FOLDER / f"{part}.json").read_text(encoding="utf-8"))
        assert (document["version"], list(document)) == ("1.1", ["version", "data"])
    assert source.report() == []


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


def test_pairs_of_test_questions_are_nowhere_in_train_or_val(generator, rows):
    def pairs(story):
        for sentence in story.split(". "):
            words = re.findall(r"\w+", sentence)
            people = [word for word in words if word in generator.lexicon.NAMES]
            yield from ((person, word) for person in people for word in words)

    held_out = set()
    for name in generator.lexicon.NAMES:
        for things in (generator.lexicon.PLACES, generator.lexicon.OBJECTS, generator.lexicon.JOBS):
            held_out |= {(name, thing) for thing in things if generator.is_held_out((name, thing))}
    seen = {
        pair for part in ("train", "val") for row in rows[part] for pair in pairs(row["context"])
    }
    assert 60 < len(held_out) < 150
    assert not held_out & seen
    for row in rows["test"]:
        assert held_out & set(pairs(row["context"])), row
    words = set(re.findall(r"\w+", " ".join(row["context"] for row in rows["train"])))
    known = set(re.findall(r"\w+", " ".join(row["question"] for row in rows["train"])))
    for row in rows["test"]:
        assert set(re.findall(r"\w+", row["context"] + row["question"])) <= words | known


@pytest.mark.parametrize("part", PARTS)
def test_the_sentence_nearest_to_the_question_does_badly(rows, part):
    def nearest(row):
        asked = set(re.findall(r"\w+", row["question"].lower()))
        sentences = row["context"].split(". ")
        return max(sentences, key=lambda s: len(asked & set(re.findall(r"\w+", s.lower()))))

    count = len(rows[part])
    assert 100 * sum(exact_match(nearest(row), row["answers"]) for row in rows[part]) / count < 1
    assert 100 * sum(f1(nearest(row), row["answers"]) for row in rows[part]) / count < 40
