"""Words have borders where letters, digits and signs meet, and know where they came from."""

import numpy as np
import pytest

from seqattn.extras.answers.span_text import cut_words, match_words

TEXT = "  Der U.S.-Präsident\tzahlte 1990s US$5.2 Mio — 東京で! नमस्ते_x e\u0301te\u0301 😀😀\n"
WORDS = [
    "Der", "U", ".", "S", ".", "-", "Präsident", "zahlte", "1990", "s", "US", "$", "5", ".", "2",
    "Mio", "—", "東", "京", "で", "!", "नमस्ते", "_", "x", "e\u0301te\u0301", "😀", "😀",
]  # fmt: skip


def test_letters_digits_and_signs_part_and_marks_stay_with_their_letters():
    cut = cut_words(TEXT)
    assert cut.words == WORDS
    assert cut.text == " ".join(WORDS)


def test_every_character_knows_its_place():
    cut = cut_words(TEXT)
    for word, start in zip(cut.words, cut.starts, strict=True):
        places = cut.places[start : start + len(word)]
        assert "".join(TEXT[place] for place in places) == word
        assert cut.places[start + len(word)] == places[-1] + 1


@pytest.mark.parametrize("text", ["", " \n ", "▁"])
def test_a_text_of_spaces_has_no_words(text):
    cut = cut_words(text)
    assert (cut.text, cut.words, cut.places.tolist()) == ("", [], [0])


def test_a_words_match_is_exact_folded_or_by_its_first_letters():
    context = ["Philosophers", "used", "The", "the", "force", "Used"]
    question = ["the", "philosophy", "Used"]
    expected = [
        [0, 0, 1, 0.5],
        [0, 1, 1, 1],
        [0, 1, 1, 1],
        [1, 1, 1, 1],
        [0, 0, 0, 0.5],
        [1, 1, 1, 1],
    ]
    np.testing.assert_allclose(match_words(context, question), expected)


def test_a_context_or_question_without_words_matches_nothing():
    assert match_words([], ["a"]).shape == (0, 4)
    assert match_words(["a", "b"], [])[:, :3].tolist() == [[0, 0, 0]] * 2
