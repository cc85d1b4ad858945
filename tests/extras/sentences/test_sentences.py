"""Texts split into sentences, and these cut."""

import random
import sys

import pytest
import sentencex

from seqattn.extras.sentences import sentences
from seqattn.extras.sentences.sentences import (
    cut_long,
    split_sentences,
)
from tests.growth import SIGNS, grows

SPACES = "".join(filter(str.isspace, map(chr, range(sys.maxunicode))))
NASTY = [
    *SPACES,
    *".!?。।؟",
    *"\"'`“”«»()[]",
    *"aA1é犬مש\0\ud800\udc00\u0301\u200b\ufeff\u202e",
    "🙂",
]


def nasty_texts(count=300):
    draw = random.Random(0)
    for _ in range(count):
        yield "".join(draw.choices(NASTY, k=draw.choice((1, 3, 12, 60))))


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith paid $5.50. He left!", ["Dr. Smith paid $5.50.", " ", "He left!"]),
        ("deu_Latn", "Es war am 3. Mai.  Gut so.", ["Es war am 3. Mai.", "  ", "Gut so."]),
        ("zh-Hans", "你好。我很好。", ["你好。", "", "我很好。"]),
        ("en", "🙂🙂 Yes.\u00a0Be\u0301.", ["🙂🙂 Yes.", "\u00a0", "Be\u0301."]),
        ("en", " \tA b.\r\nC d. \n", [" \tA b.\r\nC d. \n"]),
        ("en", "A b.\n\r\n\nC d.", ["A b.", "\n\r\n\n", "C d."]),
        ("he", "מה שלומך. טוב.", ["מה שלומך.", " ", "טוב."]),
        ("en", f"Yes.{' ' * 10**6}No.", ["Yes.", " " * 10**6, "No."]),
        ("en", "A\0b. C.", ["A\0b.", " ", "C."]),
        ("en", "?!...", ["?!..."]),
        ("en", "", [""]),
        ("en", "  \n\n ", ["  \n\n "]),
    ],
)
def test_sentences_alternate_with_the_spaces_between_them(language, text, expected):
    assert split_sentences(text, language) == expected


@pytest.mark.parametrize("language", ["en", "de", "zh", "fi", "hy", "my"])
def test_the_parts_of_any_text_are_the_text(language, capfd):
    spaced = (f"A{space}.{space}B{space}? C" for space in SPACES)
    for text in (*spaced, *nasty_texts()):
        parts = split_sentences(text, language)
        assert "".join(parts) == text
        assert len(parts) % 2 == 1
        assert all(not gap or gap.isspace() for gap in parts[1::2])
        assert len(parts) == 1 or all(sentence.strip() for sentence in parts[::2])
    assert capfd.readouterr().err == ""  # no panic


def test_a_panic_leaves_one_sentence_and_other_errors_are_raised(monkeypatch):
    monkeypatch.setattr(sentences, "_WIDE_SPACE", sentences._HALF)
    assert split_sentences("A\u2028.\u2028 B. C.") == ["A\u2028.\u2028 B. C."]

    def interrupted(language, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(sentencex, "get_sentence_boundaries", interrupted)
    with pytest.raises(KeyboardInterrupt):
        split_sentences("A.")


def test_long_texts_are_split_as_short_ones():
    each = ["Dr. Smith sees 3 cats.", "“No. Way.” said J. R. Tolkien.", "Why?", "犬が好きです。"]
    text = " ".join(each * 500)
    assert split_sentences(text)[::2] == each * 500
    words = "no end " * 3000
    assert split_sentences(f"{words}here. Next {words}. End.")[2:] == [
        f"Next {words}.",
        " ",
        "End.",
    ]


def test_splitting_and_cutting_take_no_more_time_than_the_text():
    signs = (*SIGNS, "犬。", "``", "“A.” ", "\u3000", "A. ", "!?. ", ", ", "、", "\u0301", "a\n\n")

    def work(text):
        cut_long(split_sentences(text), len, 9)

    assert [sign for sign in signs if grows(work, sign)] == []


def words(text):
    return len(text.split())


@pytest.mark.parametrize(
    ("text", "length", "limit", "expected"),
    [
        ("a b c d, e f", words, 4, ["a b c d,", " ", "e f"]),
        ("a b,  c d e f; g", words, 5, ["a b,", "  ", "c d e f; g"]),
        (" a b c d ", words, 2, [" a b", " ", "c d "]),
        ("at 12:30 1,000 men", len, 10, ["at 12:30", " ", "1,000 men"]),
        ("他喜欢\uff0c我不喜欢。", len, 5, ["他喜欢\uff0c", "", "我不喜欢。"]),
        ("أحب، ولا", words, 1, ["أحب،", " ", "ولا"]),
        ("abcde", len, 3, ["ab", "", "cde"]),
        ("ae\u0301e\u0301", len, 3, ["ae\u0301", "", "e\u0301"]),
        ("a b", words, 2, ["a b"]),
        ("🙂", lambda text: 5 * text.count("🙂"), 3, ["🙂"]),
    ],
)
def test_a_long_sentence_is_cut_at_clauses_then_spaces_then_anywhere(text, length, limit, expected):
    parts, cuts = cut_long(["A.", " ", text], length, limit)
    assert parts == ["A.", " ", *expected]
    assert cuts == len(expected) // 2


def test_pieces_fit_and_the_pieces_of_any_text_are_the_text():
    for number, text in enumerate(nasty_texts()):
        parts, limit = split_sentences(text), number % 20 + 1
        pieces, cuts = cut_long(parts, len, limit)
        assert "".join(pieces) == text
        assert len(pieces) == len(parts) + 2 * cuts
        assert all(len(piece) <= limit or not piece.strip() for piece in pieces[::2])


@pytest.mark.parametrize("text", ["a" * 10**6, "a, " * 10**5, f"{'a, ' * 10**4}{'b' * 10**6}"])
def test_the_length_of_a_text_is_asked_for_a_few_times(text):
    lengths = []

    def length(part):
        lengths.append(len(part))
        return len(part)

    cut_long([text], length, 1000)
    assert sum(lengths) < 20 * len(text)
    assert len(lengths) < 10 * len(text) / 1000
