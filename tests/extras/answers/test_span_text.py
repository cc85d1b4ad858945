"""Tokens know their characters, and answers are found again from their tokens."""

import pytest

from seqattn.extras.answers.span_text import TextReader, cut_words, find_span, trimmed
from tests.extras.answers.small_spans import CONTEXTS, ROWS, small_tokenizer

KINDS = {
    "unigram": {},
    "bpe": {"kind": "bpe"},
    "bytes": {"byte_fallback": True, "vocab_size": 320, "character_coverage": 0.98},
    "folded": {"normalization": "nmt_nfkc_cf"},
}
# signs that no vocabulary has seen, one that folding spells as three, runs of spaces
STRANGE = "\u2003Ⅻ  ßßß 😀ñ\n\nﬁre   12 Köln东京."


@pytest.fixture(scope="module", params=KINDS, ids=str)
def reader(request, tmp_path_factory):
    return TextReader(small_tokenizer(tmp_path_factory.mktemp("cache"), **KINDS[request.param]))


@pytest.mark.parametrize("text", [*CONTEXTS, STRANGE])
def test_tokens_stand_for_every_character_but_spaces_once_and_in_order(reader, text):
    read = reader.context(text)
    said = "".join(text[b:e] for b, e in zip(read.begins, read.ends, strict=True))
    assert said == "".join(text.split())
    spans = [place for pair in zip(read.begins, read.ends) for place in pair]
    assert spans == sorted(spans)


@pytest.mark.parametrize("text", [*CONTEXTS, STRANGE])
def test_a_token_belongs_to_the_word_that_it_stands_in(reader, text):
    read, cut = reader.context(text), cut_words(text)
    assert read.words == cut.words
    for word, begin, end in zip(read.word, read.begins, read.ends, strict=True):
        start = cut.places[cut.starts[word]]
        assert start <= begin <= end <= start + len(cut.words[word])


@pytest.mark.parametrize("text", [*CONTEXTS, STRANGE])
def test_every_run_of_whole_words_is_found_again_exactly(reader, text):
    read, cut = reader.context(text), cut_words(text)
    starts = cut.places[cut.starts]
    ends = [start + len(word) for start, word in zip(starts, cut.words)]
    for first, start in enumerate(starts):
        for end in ends[first:]:
            span = find_span(read, start, end)
            assert span.exact
            assert text[read.begins[span.first] : read.ends[span.last]] == text[start:end]


def test_an_answer_within_a_word_gets_the_smallest_cover(tmp_path):
    reader = TextReader(small_tokenizer(tmp_path, "bpe", vocab_size=140))
    text = CONTEXTS[1]
    read = reader.context(text)
    for start in range(len(text)):
        for end in range(start + 1, min(start + 9, len(text)) + 1):
            span = find_span(read, start, end)
            if not text[start:end].strip():
                assert span is None
                continue
            begin, stop = read.begins[span.first], read.ends[span.last]
            inside = text[start:end].strip()
            at = text.index(inside, start)
            assert begin <= at
            assert at + len(inside) <= stop
            assert read.ends[span.first] > at
            assert read.begins[span.last] < at + len(inside)
            assert span.exact == (text[begin:stop] == text[start:end])


def test_a_question_ends_with_its_mark_even_when_it_says_nothing(reader):
    assert reader.question("  ").ids.tolist() == [3]
    read = reader.question(ROWS[0][1])
    assert read.ids.tolist() == [*reader.context(ROWS[0][1]).ids.tolist(), 3]
    assert read.ends[-1] == read.begins[-1] == len(ROWS[0][1])


def test_spaces_around_an_answer_are_left_out():
    assert trimmed("  a b ", 7) == (9, 12)
    assert trimmed("a", 7) == (7, 8)
    assert trimmed("   ", 7) == (10, 10)
