"""The bundled reports are what their README says."""

import json

import pytest

from seqattn.data.table import DemoSummarization
from seqattn.metrics.rouge import RougeScorer
from tests.pages import ROOT

FOLDER = ROOT / "data" / "demo_summarization"
PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def rows():
    def read(part):
        lines = (FOLDER / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return {part: read(part) for part in PARTS}


def capitals(text):
    return {word.strip(".,") for word in text.split() if word[0].isupper()}


def test_no_headline_comes_twice(rows):
    headlines = [row["summary"] for found in rows.values() for row in found]
    assert len(set(headlines)) == len(headlines)


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
