"""Answers without a model are parts of their contexts, chosen as they say."""

import itertools
import re
from collections import Counter

from seqattn.benchmarks.baselines import best_sentences, random_spans

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
