"""Summaries without a model are the first sentence, or that of the most similar document."""

import math
import re
from collections import Counter

from seqattn.benchmarks.baselines import first_sentences, nearest_summaries

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


def cosine(one, other):
    """By the formula, word by word."""
    rows = [Counter(re.findall(r"\w+", text.lower())) for text in KNOWN]

    def weights(text):
        return {
            word: (1 + math.log(count)) * math.log(len(rows) / df)
            for word, count in Counter(re.findall(r"\w+", text.lower())).items()
            if (df := sum(word in row for row in rows))
        }

    a, b = weights(one), weights(other)
    norms = [math.sqrt(sum(x * x for x in v.values())) or 1.0 for v in (a, b)]
    return sum(x * b.get(word, 0.0) for word, x in a.items()) / (norms[0] * norms[1])


def test_the_nearest_is_that_of_the_formula():
    asked = ["Monday: MEETING of us", "the the gas rose rose", "pizza on monday", "a contract, gas"]
    wanted = [max(range(4), key=lambda n: cosine(text, KNOWN[n])) for text in asked]
    assert len(set(wanted)) == 4
    assert nearest_summaries(asked, KNOWN, SUMMARIES) == [SUMMARIES[n] for n in wanted]


def test_more_documents_than_are_compared_at_once_keep_their_order():
    asked = KNOWN * 100
    assert nearest_summaries(asked, KNOWN, SUMMARIES) == SUMMARIES * 100


def test_what_is_like_nothing_gets_the_first():
    assert nearest_summaries(["", "zebra"], KNOWN, SUMMARIES) == ["board meeting"] * 2
