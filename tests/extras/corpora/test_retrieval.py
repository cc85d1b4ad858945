"""Known texts that are most like others."""

import math
import random
import re
from collections import Counter

import pytest

from seqattn.extras.corpora.retrieval import TfidfIndex

KNOWN = [
    "the meeting of the board is on monday",
    "gas prices rose on monday in the west",
    "lunch? the board eats pizza",
    "please find the gas contract attached",
    "the Gas contract: attached, the prices",
]
ASKED = ["Monday: MEETING of zebras", "the the gas rose rose", "pizza on monday", "", "zebra"]


def cosine(one, other):
    """By the formula, word by word; a word that nobody knows is one text's."""
    rows = [Counter(re.findall(r"\w+", text.lower())) for text in KNOWN]

    def weights(text):
        return {
            word: (1 + math.log(count)) * math.log(len(rows) / max(1, sum(word in r for r in rows)))
            for word, count in Counter(re.findall(r"\w+", text.lower())).items()
        }

    a, b = weights(one), weights(other)
    norms = [math.sqrt(sum(x * x for x in v.values())) or 1.0 for v in (a, b)]
    return sum(x * b.get(word, 0.0) for word, x in a.items()) / (norms[0] * norms[1])


def ranked(text, but=None):
    """Numbers of all known texts with their cosines, the first of equal ones first."""
    cosines = [(number, cosine(text, known)) for number, known in enumerate(KNOWN) if number != but]
    return sorted(cosines, key=lambda entry: -entry[1])


def assert_same(found, wanted):
    assert [number for number, _ in found] == [number for number, _ in wanted]
    likeness = [cosine for _, cosine in wanted]
    assert [cosine for _, cosine in found] == pytest.approx(likeness, abs=1e-5)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_cosines_and_their_order_are_those_of_the_formula(count):
    index = TfidfIndex(KNOWN)
    for text, found in zip(ASKED, index.nearest(ASKED, count), strict=True):
        assert_same(found, ranked(text)[:count])


def test_a_text_that_is_known_has_a_cosine_of_one():
    draw = random.Random(3)
    texts = [" ".join(draw.choices("abcdefghij", k=draw.randrange(2, 30))) for _ in range(200)]
    assert {found[0][1] for found in TfidfIndex(texts).nearest(texts)} == {1.0}


def test_a_known_text_does_not_find_itself():
    for number, found in enumerate(TfidfIndex(KNOWN).nearest(KNOWN, 9, themselves=False)):
        assert_same(found, ranked(KNOWN[number], but=number))
    assert list(TfidfIndex(["alone"]).nearest(["alone"], themselves=False)) == [[]]


def test_more_texts_than_are_compared_at_once_keep_their_order():
    index = TfidfIndex(KNOWN * 100)
    found = [number for [(number, _)] in index.nearest(KNOWN * 100)]
    assert found == [0, 1, 2, 3, 4] * 100
    others = [number for [(number, _)] in index.nearest(KNOWN * 100, themselves=False)]
    assert others == [5, 6, 7, 8, 9] + [0, 1, 2, 3, 4] * 99
