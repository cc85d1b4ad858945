"""Word alignments are read as they stand, and what is wrong in them is named by its line."""

import numpy as np
import pytest

from seqattn.analysis.word_alignment import WordAlignment
from seqattn.data.sources import DemoTranslation, ParallelText
from seqattn.data.word_links import linked_words, read_links, words_in
from seqattn.errors import UserError

SOURCES, TARGETS = ["a dog runs .", "a cat"], ["ein Hund rennt .", "eine Katze dort"]


def written(folder, text):
    path = folder / "test.align"
    path.write_text(text, encoding="utf-8")
    return path


def test_sure_links_are_possible_too(tmp_path):
    first, second = read_links(written(tmp_path, "0-0 1p0 3?3\n\n"), SOURCES, TARGETS)
    assert first == ({(0, 0)}, {(0, 0), (1, 0), (3, 3)})
    assert second == (set(), set())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n", "must have one line per pair of the split, got 1 lines for 2"),
        ("0-0\n0-0\n0-0\n", "got 3 lines for 2"),
        ("0-0\n2-0\n", "line 2: 2-0 refers to word 2 of the source, which has 2 words"),
        ("0-4\n0-0\n", "line 1: 0-4 refers to word 4 of the target, which has 4 words"),
        ("0-0\n1:1\n", "line 2: a link must have the form 0-0 or 0p0, got '1:1'"),
        ("0-0\n-1-0\n", "line 2: a link must have the form 0-0 or 0p0, got '-1-0'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(UserError) as refused:
        read_links(written(tmp_path, text), SOURCES, TARGETS)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_words_are_counted_between_spaces_as_fast_align_counts(tmp_path, capfd):
    """What the tokenizer folds into spaces or not, links name the words of their writer."""
    source, target = "oui\u00a0! non\u3000! \u2009 a\tb", "yes ! no ! . a b"
    assert words_in(source) == ["oui\u00a0!", "non\u3000!", "\u2009", "a", "b"]
    [links] = read_links(written(tmp_path, "1-2 4-6\n"), [source], [target])
    assert links.sure == {(1, 2), (4, 6)}
    assert capfd.readouterr().err.count("eflomal") == 1
    for words, expected in ((words_in(source), 1), (source.split(), 2), (["x"] * 4, None)):
        found = linked_words(
            WordAlignment(words, target.split(), [expected or 0] * 7), source, target
        )
        assert found == (None if expected is None else {(1, j) for j in range(7)})
    read_links(written(tmp_path, "0-0\n\n"), SOURCES, TARGETS)
    assert not capfd.readouterr().err


def test_a_file_for_all_pairs_serves_those_of_a_split(tmp_path):
    part = np.array([1, 3]), 4
    lines = written(tmp_path, "9-9\n0-1\n9-9\n1-2\n")
    assert [one.sure for one in read_links(lines, SOURCES, TARGETS, part=part)] == [
        {(0, 1)},
        {(1, 2)},
    ]
    own = written(tmp_path, "0-1\n1-9\n")
    with pytest.raises(UserError, match="line 2: 1-9 refers to word 9"):
        read_links(own, SOURCES, TARGETS, part=part)
    with pytest.raises(UserError, match="line 4: 1-9 refers to word 9"):
        read_links(written(tmp_path, "\n0-1\n\n1-9\n"), SOURCES, TARGETS, part=part)
    other = written(tmp_path, "0-1\n" * 3)
    with pytest.raises(UserError, match="got 3 lines for 2 pairs, or 4 with those of other splits"):
        read_links(other, SOURCES, TARGETS, part=part)


def test_a_file_that_is_not_there(tmp_path):
    for name, says in (("gone", "is not a file"), ("x" * 300, "File name too long")):
        with pytest.raises(UserError, match=says):
            read_links(tmp_path / name, SOURCES, TARGETS)


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_demo_brings_its_own_which_fit_its_text(split):
    source = DemoTranslation()
    rows = source.load(split)
    links = read_links(source.alignments_of(split), list(rows["source"]), list(rows["target"]))
    assert len(links) == len(rows)


def test_other_texts_have_those_that_they_are_given(tmp_path):
    assert DemoTranslation().alignments_of("train") is None
    assert DemoTranslation(alignments="mine").alignments_of("val").name == "mine"
    assert ParallelText(str(tmp_path), "en", "de").alignments_of("val") is None
    assert ParallelText(str(tmp_path), "en", "de", alignments="a").alignments_of("val").name == "a"
