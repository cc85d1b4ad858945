"""Fragments of a source, found by hand."""

from seqattn.extras.report.copy_document import copied_document

END = "</s>"


def pieces(text):
    return [f"▁{word}" for word in text.split()]


def test_fragments_are_the_longest_runs_that_stand_in_both():
    source = [*pieces("a man saw the old dog in the old house"), END]
    target = [*pieces("the old house saw nothing old"), END]
    found = copied_document(source, target)
    assert found["pieces"] == [True, True, True, True, False, True, False]
    assert found["coverage"] == 5 / 6
    assert found["density"] == (9 + 1 + 1) / 6


def test_a_word_in_other_pieces_is_the_same_word_and_a_part_of_one_is_none():
    source = ["▁do", "g", "▁sees", END]
    assert copied_document(source, ["▁dog", END])["pieces"] == [True, False]
    found = copied_document(source, ["▁do", "▁se", "es", END])
    assert found["pieces"] == [False, True, True, False]


def test_a_word_spelt_in_bytes_is_the_same_word_and_a_space_alone_is_none():
    """Of two vocabularies one may hold a sign that the other spells."""
    found = copied_document(["▁a", "▁", "☃", END], ["▁", "<0xE2>", "<0x98>", "<0x83>", "▁", END])
    assert found["pieces"] == [True, True, True, True, False, False]
    assert found["coverage"] == 1


def test_a_line_break_ends_a_word_and_is_none():
    source = ["▁He", "▁sees", "▁books", "↵", "▁No", "↵x", "y", "z↵", "W", END]
    found = copied_document(source, ["▁books", "↵", "▁xy", "▁z", "▁W", "▁xyz", END])
    assert found["pieces"] == [True, False, False, False, True, True, False]
    assert found["coverage"] == 3 / 5
    assert copied_document(source, ["▁xyz", END])["pieces"] == [True, False]


def test_nothing_said_is_nothing_copied():
    assert copied_document(["▁a", END], [END])["coverage"] == 0.0
