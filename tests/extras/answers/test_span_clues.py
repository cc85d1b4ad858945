"""Clues of a context's words: shapes, rarity, and how well what is around them meets a question."""

import numpy as np
import pytest

from seqattn.extras.answers.span_clues import CLUES, word_clues
from seqattn.extras.answers.span_text import ReadText, spell_words


def read(text, **ids):
    """Words as one token each, with ids of their own where these are given, else 99."""
    words = text.split()
    number = np.arange(len(words))
    tokens = np.array([ids.get(word.lower(), 99) for word in words], np.int64)
    return ReadText(tokens, number, number + 1, number, words)


RARE = np.log(100) / 9
CONTEXT = read("The USA won in 1990 . Then Dr . No met the Mets fans 12 times", the=1)


def clue(name, question="?", context=CONTEXT):
    return word_clues(context, read(question, the=1))[:, CLUES.index(name)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("capital", "The USA Then Dr No Mets"),
        ("capitals", "USA"),
        ("digits", "1990 12"),
        ("year", "1990"),
        ("sign", ". ."),
        ("opening", "The Then No"),  # which a full stop before a capital begins
    ],
)
def test_shapes_are_those_of_the_words(name, words):
    marked = [word for word, is_so in zip(CONTEXT.words, clue(name)) if is_so]
    assert marked == words.split()


def test_a_word_is_as_rare_as_its_pieces_numbers_are_large():
    rarity = clue("rarity")
    np.testing.assert_allclose(rarity[[0, 1]], [np.log(2) / 9, RARE], rtol=1e-6)
    two = ReadText(
        np.array([4, 99]), np.array([0, 2]), np.array([2, 4]), np.array([0, 0]), ["abcd"]
    )
    np.testing.assert_allclose(
        clue("rarity", context=two), [(np.log(5) + np.log(100)) / 9], rtol=1e-6
    )


def test_a_sentence_holds_the_share_of_the_questions_weight_that_its_words_have():
    the = (np.log(2) / 9) ** 2
    held = clue("covered", "the usa fans lost")
    first, last = ((x * RARE**2 + the) / (3 * RARE**2 + the) for x in (1, 1))
    np.testing.assert_allclose(held[[0, 5]], [first] * 2, rtol=1e-5)
    np.testing.assert_allclose(held[[6, 8]], 0, atol=1e-6)
    np.testing.assert_allclose(held[[9, 15]], [last] * 2, rtol=1e-5)
    behind = clue("behind", "usa won fans")
    np.testing.assert_allclose(behind[[0, 6, 9]], [0, -2 / 3, -1 / 3], atol=1e-6)


def test_runs_are_as_long_as_in_both_texts():
    runs = clue("run", "who met the mets in 1990") * 5
    assert runs.round().astype(int).tolist() == [1, 0, 0, 2, 2, 0, 0, 0, 0, 0, 3, 3, 3, 0, 0, 0]
    assert clue("run", "a b c d e f g", read("a b c d e f g")).tolist() == [1.0] * 7


def test_a_matched_word_weighs_less_the_oftener_it_stands_there_and_is_felt_nearby():
    context = read("x Fans y fans z w")
    weight = RARE**2 / 2**0.5
    np.testing.assert_allclose(clue("match", "fans", context)[[1, 3, 4]], [weight, weight, 0], 1e-5)
    before = clue("before", "fans", context)
    np.testing.assert_allclose(
        before, np.log1p(weight * np.array([0, 0, 0.5, 0.25, 0.625, 0.3125])), rtol=1e-5
    )
    after = clue("after", "fans", context)
    np.testing.assert_allclose(after[:2], np.log1p(weight * np.array([0.625, 0.25])), rtol=1e-5)
    around = clue("around", "fans", context)
    np.testing.assert_allclose(around[1], np.log1p(weight * 0.97**2), rtol=1e-5)


def test_what_is_near_falls_off_as_written_out():
    words = ["fans" if n % 3 == 0 or n in (7, 8) else f"w{n}" for n in range(40)]
    context = read(" ".join(words))
    weight = clue("match", "fans", context).astype(np.float64)
    apart = np.subtract.outer(np.arange(40), np.arange(40))
    for name, decay, side in (
        ("before", 0.5, apart > 0), ("after", 0.5, apart < 0), ("before, far", 0.85, apart > 0),
        ("after, far", 0.85, apart < 0), ("around", 0.97, apart != 0),
    ):  # fmt: skip
        written = np.log1p((decay ** abs(apart) * side) @ weight)
        np.testing.assert_allclose(clue(name, "fans", context), written, rtol=1e-5)


@pytest.mark.parametrize(("context", "question"), [("", "a b"), ("a b", ""), ("", "")])
def test_texts_without_words_give_finite_clues(context, question):
    found = word_clues(read(context), read(question))
    assert found.shape == (len(context.split()), len(CLUES))
    assert np.isfinite(found).all()


def test_words_are_spelt_by_their_first_characters():
    spelt = spell_words([["", "ab"], ["Ā" * 20]])
    assert spelt.shape == (2, 2, 16)
    assert spelt[0].tolist() == [[0] * 16, [98, 99, *[0] * 14]]
    assert spelt[1, 0].tolist() == [257] * 16
    assert not spelt[1, 1].any()
    assert spell_words([[""]]).tolist() == [[[0]]]
