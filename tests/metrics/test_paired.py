"""Paired tests of two systems."""

import random

import pytest
from sacrebleu.metrics.bleu import BLEU

from seqattn.metrics.paired import paired_bootstrap

WORDS = [
    "a",
    "dog",
    "sees",
    "the",
    "cat",
    "hears",
    "some",
    "bread",
    "finds",
    "two",
    "birds",
    "and",
    "an",
    "old",
    "house",
]


def corpus(count, wrong, seed=0):
    """References, and outputs of which a share of the words is wrong."""
    source = random.Random(seed)
    references = [" ".join(source.choices(WORDS, k=9)) for _ in range(count)]
    change = random.Random(seed + 1)
    return references, [
        " ".join("x" if change.random() < wrong else word for word in text.split())
        for text in references
    ]


def test_equal_systems_do_not_differ_and_a_worse_one_does():
    references, good = corpus(60, 0.1)
    bad = corpus(60, 0.4)[1]
    almost = [good[0].replace("x", "y"), *good[1:]]
    alike, other, worse = paired_bootstrap([good, good, almost, bad], references, BLEU())[1:]
    assert (alike, other) == (1.0, 1.0)
    assert worse == pytest.approx(1 / 1001)


def test_a_small_difference_is_noise_with_several_references_too():
    references, good = corpus(20, 0.2)
    changed = [*good[:1], good[1].replace("x", "a", 1), *good[2:]]
    assert changed != good
    several = [[text, text] for text in references]
    for given in (references, several):
        assert paired_bootstrap([good, changed], given, BLEU())[1] > 0.05
