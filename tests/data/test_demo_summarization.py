"""The bundled reports are what their generator and their README say."""

import json

import pytest

from seqattn.data.table import DemoSummarization
from seqattn.metrics.rouge import RougeScorer
from tests.data.generators import DATA, generator_of

FOLDER = DATA / "demo_summarization"
PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def generator():
    with generator_of("summarization") as module:
        yield module


@pytest.fixture(scope="module")
def rows():
    def read(part):
        lines = (FOLDER / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return {part: read(part) for part in PARTS}


def capitals(text):
    return {word.strip(".,") for word in text.split() if word[0].isupper()}


def test_reports_are_short_and_as_many_as_stated(generator, rows):
    assert {part: len(found) for part, found in rows.items()} == generator.SIZES
    words = [len(row["document"].split()) for found in rows.values() for row in found]
    assert (min(words), max(words)) == (39, 55)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 600_000


def test_no_headline_comes_twice(rows):
    headlines = [row["summary"] for found in rows.values() for row in found]
    assert len(set(headlines)) == len(headlines)


def test_held_out_names_are_in_every_headline_of_test_and_nowhere_else(generator, rows):
    held_out = generator.held_out_names()
    assert 40 < len(held_out) < 80
    for part in ("train", "val"):
        for row in rows[part]:
            assert not held_out & (capitals(row["document"]) | capitals(row["summary"]))
    assert all(held_out & capitals(row["summary"]) for row in rows["test"])
    # their halves are known
    known = set().union(*(capitals(row["document"]) for row in rows["train"]))
    for name in set().union(*(held_out & capitals(row["summary"]) for row in rows["test"])):
        halves = [(name[:cut], name[cut:]) for cut in range(2, len(name) - 1)]
        assert any(
            any(word.startswith(start) and word != name for word in known)
            and any(word.endswith(end) and word != name for word in known)
            for start, end in halves
        ), name


def test_names_and_numbers_of_a_headline_stand_in_its_report_once(generator, rows):
    for found in rows.values():
        for row in found:
            said = [word.strip(".,") for word in row["document"].split()]
            names = capitals(row["summary"]) - {"Stolen", "Storm"}
            numbers = {word for word in row["summary"].split() if word.isdigit()}
            assert names
            for word in names | numbers:
                assert said.count(word) == 1, (word, row)


@pytest.mark.parametrize("part", PARTS)
def test_no_single_sentence_is_a_good_headline(rows, part):
    def score(choose):
        scorer = RougeScorer(resamples=0)
        some = rows[part][:150]
        scores = scorer.score([choose(row) for row in some], [row["summary"] for row in some])
        return {score.name: score.value for score in scores}["ROUGE-L"]

    def first(row):
        return row["document"].split(". ")[0]

    def central(row):
        """The sentence that shares most words with the others."""
        sentences = row["document"].split(". ")
        bags = [set(sentence.lower().split()) for sentence in sentences]
        shared = [sum(len(bag & other) for other in bags if other is not bag) for bag in bags]
        return sentences[shared.index(max(shared))]

    def best(row):
        """An oracle: the sentence that shares most words with the headline."""
        wanted = set(row["summary"].lower().split())
        sentences = row["document"].split(". ")
        return max(sentences, key=lambda s: len(wanted & set(s.lower().strip(".").split())))

    assert score(first) < 10
    assert score(central) < 25
    assert score(best) < 50


def test_the_source_gives_them_by_split(rows):
    source = DemoSummarization()

    for part in PARTS:
        found = source.load(part)
        assert list(found["source"]) == [row["document"] for row in rows[part]]
        assert list(found["target"]) == [row["summary"] for row in rows[part]]
