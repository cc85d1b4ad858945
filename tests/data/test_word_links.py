"""Word alignments are read as they stand, and what is wrong in them is named by its line."""

import pytest

from seqattn.data.sources import DemoTranslation, ParallelText
from seqattn.data.word_links import read_links
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
