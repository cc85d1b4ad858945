"""What needs no model: answers that are parts of their contexts, summaries of like documents."""

import itertools
import json
import re
from collections import Counter

import pytest

from benchmarks.baselines import (
    BaselinesSuite,
    best_sentences,
    first_sentences,
    nearest_summaries,
    random_spans,
)
from seqattn.data.table import Aeslc

CONTEXT = 'Ann rode home. "Did the old mill burn?" Bob said (in 1990.) The mill burnt in 1990!'


def test_the_sentence_that_shares_most_words_is_the_answer_and_the_first_of_equals():
    questions = ["When did the MILL burn", "Who is Ann, Ann, Ann?", "1990 mill", "Zoe?"]
    assert best_sentences(questions, [CONTEXT] * 4) == [
        '"Did the old mill burn?',
        "Ann rode home.",
        "The mill burnt in 1990!",
        "Ann rode home.",
    ]


def test_an_empty_context_gives_nothing():
    assert best_sentences(["a"], [" "]) == [""]
    assert random_spans([" ", CONTEXT], [["a"], []]) == ["", ""]


def test_a_random_span_has_as_many_words_as_the_answer_and_starts_anywhere():
    words = re.findall(r"\w+", CONTEXT)
    spans = random_spans([CONTEXT] * 4000, [["New, York!", "x"]] * 4000, seed=5)
    pairs = [tuple(re.findall(r"\w+", span)) for span in spans]
    assert all(span in CONTEXT for span in spans)
    starts = Counter(pairs)
    possible = list(itertools.pairwise(words))
    assert set(starts) == set(possible)
    once = [starts[pair] for pair in possible if possible.count(pair) == 1]
    assert max(once) < 1.4 * min(once)


def test_the_seed_decides_and_an_answer_beyond_the_context_takes_it_all():
    ask = ([CONTEXT] * 20, [["a b c"]] * 20)
    assert random_spans(*ask, seed=1) == random_spans(*ask, seed=1) != random_spans(*ask, seed=2)
    assert random_spans(["x, y"], [["a b c"]]) == ["x, y"]


KNOWN = [
    "the meeting of the board is on monday",
    "gas prices rose on monday in the west",
    "lunch? the board eats pizza",
    "please find the gas contract attached",
]
SUMMARIES = ["board meeting", "gas prices", "pizza", "contract"]


def test_the_first_sentence_ends_at_a_sign_or_at_the_line():
    assert first_sentences(["Hi all! More.", "One line\nanother. And", "no end", " \n"]) == [
        "Hi all!",
        "One line",
        "no end",
        "",
    ]


def test_a_document_gets_the_summary_of_the_known_one_that_shares_its_words():
    asked = ["Monday: MEETING of us", "the the gas rose rose", "pizza on monday", "a contract, gas"]
    assert nearest_summaries(asked, KNOWN, SUMMARIES) == SUMMARIES
    assert nearest_summaries(["", "zebra"], KNOWN, SUMMARIES) == ["board meeting"] * 2


def test_what_other_people_wrote_is_scored_against_the_first_reference(tmp_path):
    subjects = {"train": [["x"]], "dev": [["gas price", "gas", "rise"], ["a b", "a b", "b"]]}
    for name, rows in subjects.items():
        lines = [
            json.dumps({"id": "1", "document": "Gas.", "summary": row[0], "references": row})
            for row in rows
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    for every in (True, False):
        suite = BaselinesSuite(source=Aeslc(str(tmp_path), every), cache_dir=str(tmp_path / "kept"))
        scores = {figures.title: figures.rows[0]["value"] for figures in suite.measure()}
        people = scores.get("val: other references against the first")
        if not every:
            assert people is None
        else:
            assert people is not None
            assert people.median == pytest.approx(100 * (2 / 3 + 0 + 1 + 2 / 3) / 4)
