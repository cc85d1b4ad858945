"""Fragments of a source, found by hand."""

from seqattn.report.copying import copied_document, word_numbers, words_of

END = "</s>"


def pieces(text):
    return [f"▁{word}" for word in text.split()]


def test_a_piece_belongs_to_the_word_that_began_last():
    split = ["▁do", "g", "▁sees", "▁", "x"]
    assert word_numbers(split) == [0, 0, 1, 2, 2]
    assert words_of(split) == ["dog", "sees", "x"]


def test_fragments_are_the_longest_runs_that_stand_in_both():
    source = [*pieces("a man saw the old dog in the old house"), END]
    target = [*pieces("the old house saw nothing old"), END]
    found = copied_document(source, target, None)
    assert found["pieces"] == [True, True, True, True, False, True, False]
    assert found["coverage"] == 5 / 6
    assert found["density"] == (9 + 1 + 1) / 6


def test_a_word_in_other_pieces_is_the_same_word_and_a_part_of_one_is_none():
    source = ["▁do", "g", "▁sees", END]
    assert copied_document(source, ["▁dog", END], None)["pieces"] == [True, False]
    assert copied_document(source, ["▁do", "▁se", "es", END], None)["pieces"] == [
        False,
        True,
        True,
        False,
    ]


def test_nothing_said_is_nothing_copied():
    assert copied_document(["▁a", END], [END], None)["coverage"] == 0.0
