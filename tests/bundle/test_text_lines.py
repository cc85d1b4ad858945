"""Texts of several lines, given to a model that reads one."""

import re
from dataclasses import replace

import pytest

import seqattn
from seqattn.data.source_ids import Headed, joined_source
from seqattn.data.text_lines import TextLines, as_single_lines, is_letterless
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from tests.bundle.conftest import configuration, corpus, untrained

ONE, TWO = "a dog sees the cat", "two birds"


def split(line, head=""):
    """The sentences of a line and the spaces between them."""
    return re.split(r"(?<=[.。])(\s*)(?=\S)", line)


@pytest.fixture(scope="module")
def loaded(bundle):
    return seqattn.load(bundle)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (f"{ONE}\n{TWO}", "{}\n{}"),
        (f"{ONE}\r\n{TWO}\r\n", "{}\r\n{}\r\n"),
        (f"\n\n{ONE}\n \n{TWO}", "\n\n{}\n \n{}"),
        (f"{ONE}\r{TWO}", "{}\r{}"),
        (f"\n{ONE}", "\n{}"),
    ],
)
def test_lines_are_generated_apart_and_breaks_are_kept(loaded, text, form):
    each = [loaded.generate(line) for line in (ONE, TWO)][: form.count("{}")]
    assert loaded.generate(text) == form.format(*each)
    assert loaded.generate([TWO, text, "", ONE]) == [
        loaded.generate(TWO),
        form.format(*each),
        "",
        loaded.generate(ONE),
    ]


@pytest.mark.parametrize("text", ["", " ", "\n", "\r\n\n"])
def test_a_text_of_no_line_is_one_text(text):
    assert TextLines.of([text]).join([""]) == [""]


def test_a_text_of_one_line_draws_what_it_drew(loaded):
    several = loaded.generate([ONE, TWO, f"{ONE}\n{TWO}"], "sampling")
    assert several[:2] == loaded.generate([ONE, TWO], "sampling")
    assert loaded.generate([f"{ONE}\n{TWO}", TWO], "sampling")[1] == several[1]


def test_tags_stand_before_every_line():
    read = TextLines.of([joined_source(["fr"], [f"{ONE}\n{TWO}"], "")])
    assert read.lines == [f"<fr> {ONE}", f"<fr> {TWO}"]
    assert [line.head for line in read.lines] == [5, 5]


@pytest.mark.parametrize(
    ("long_sources", "changes", "reads"),
    [
        ("drop", {}, "lines"),
        ("drop", {"normalization": "nmt_nfkc"}, "lines"),
        ("drop", {"normalization": "nmt_nfkc", "line_breaks": True}, "text"),
        ("truncate", {"normalization": "nmt_nfkc", "line_breaks": True}, "text"),
        ("truncate", {"normalization": "nmt_nfkc"}, "text"),
        ("truncate", {}, "spaces"),
        ("window", {}, "spaces"),
    ],
)
def test_who_knows_line_breaks_or_reads_documents_keeps_texts_whole(
    long_sources, changes, reads, tmp_path, capfd
):
    texts = corpus()
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(**changes), tmp_path)
    config = configuration()
    config["loader"]["long_sources"] = long_sources
    path = untrained(tmp_path / "bundle", tokenizer, config)
    capfd.readouterr()
    bundle, text = seqattn.load(path), f"{ONE}\n{TWO}"
    assert bundle.lines(text).lines == ([ONE, TWO] if reads == "lines" else [text])
    spaced, plain = bundle.encode([text, ONE]), bundle.encode([f"{ONE} {TWO}", ONE])
    said = capfd.readouterr().err
    assert ("the model reads single lines" in said) == (reads != "text")
    if reads != "text":
        assert spaced == plain


def test_texts_that_knew_line_breaks_in_training_keep_them(tmp_path):
    texts = [text.replace(" the ", " the\n") for text in corpus()]
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(), tmp_path)
    bundle = seqattn.load(untrained(tmp_path / "bundle", tokenizer, configuration()))
    assert bundle.lines(f"{ONE}\n{TWO}").lines == [f"{ONE}\n{TWO}"]


def test_line_breaks_become_spaces_and_a_head_stays_a_head(capfd):
    head = "question: Who\nsees? context: "
    asked = Headed(f"{head}\n A dog \r\n sees.\n", len(head))
    (read,) = as_single_lines([asked])
    assert read == "question: Who sees? context: A dog sees."
    assert read[read.head :] == "A dog sees."
    assert capfd.readouterr().err.count("\n") == 1
    assert as_single_lines([f"{ONE}\n", ONE]) == [ONE, ONE]
    assert capfd.readouterr().err == ""


def test_lines_without_a_letter_are_copied_in_translation(loaded, capfd):
    texts = ["42", f"{ONE}\n 12:30 \n\n{TWO}", "1\r\n2", " ", "№ ½ 🙂", "١٢", ONE]
    first, second = (loaded.generate(line) for line in (ONE, TWO))
    assert capfd.readouterr().err == ""
    expected = ["42", f"{first}\n 12:30 \n\n{second}", "1\r\n2", "", "№ ½ 🙂", "١٢", first]
    assert loaded.generate(texts) == expected
    assert capfd.readouterr().err == "copied 6 lines or sentences without a letter\n"
    tagged = joined_source(["fr"], ["42"], "")
    assert loaded.lines([tagged]).join(["x"]) == ["42"]
    assert loaded.lines(["42"], copies=False).lines == ["42"]


@pytest.mark.parametrize("task", [{"copy_letterless": False}, {}])
def test_data_that_translates_numbers_and_other_tasks_leave_them_to_the_model(loaded, task):
    changed = replace(loaded, config={**loaded.config, "task": task})
    assert changed.lines(["42", "a\n42"]).lines == ["42", "a", "42"]


def test_invisible_signs_that_the_vocabulary_lacks_are_not_read(loaded, tmp_path):
    signs = "\u00ad\u200b\u2060\ufeff"
    hidden = "".join(f"{letter}{signs}" for letter in "dog")
    expected = loaded.generate([ONE, TWO])
    assert loaded.generate([ONE.replace("dog", hidden), TWO + signs]) == expected
    assert loaded.generate(f"{signs}4{signs}2") == f"{signs}4{signs}2"
    (read,) = loaded.lines([joined_source([f"f{signs}r"], [f"{signs}{ONE}"], "")]).lines
    assert (read, read.head) == (f"<fr> {ONE}", 5)
    for space in "\u00a0\u202f":
        lines = f"{ONE.replace(' ', space)}\n4{space}2{signs}\n{TWO}"
        assert loaded.generate(lines) == f"{expected[0]}\n4{space}2{signs}\n{expected[1]}"
        assert loaded.generate(f"4{space}2") == f"4{space}2"
    known = [*corpus(), *[f"do\u00adg sees {n}" for n in range(9)]]
    tokenizer = train_tokenizer(known, known, TokenizerConfig(), tmp_path)
    bundle = seqattn.load(untrained(tmp_path / "bundle", tokenizer, configuration()))
    assert bundle.lines(f"do{signs}g").lines == ["do\u00adg"]


def test_a_sign_that_is_left_out_between_two_breaks_loses_no_line():
    read = TextLines.of(["a\r\u00ad\n42\nb"], True, True, "\u00ad")
    assert read.join(["x", "y"]) == ["x\r\n42\ny"]


def test_equal_lines_of_a_text_draw_differently(loaded):
    outputs = loaded.generate([f"{TWO}\n{TWO}\n{TWO}", TWO], "sampling")
    assert outputs == loaded.generate([f"{TWO}\n{TWO}\n{TWO}", TWO], "sampling")
    lines = outputs[0].split("\n")
    assert len({*lines}) == 3
    assert loaded.generate(TWO, "sampling") == lines[0]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}. {TWO}.",
        f" {ONE}.\u00a0\u2003{TWO}. \r\n\n 42. {TWO}. ",
        f"4. 2.\n{ONE}. 42. {TWO}",
        "犬。犬。",
        "4. 2.",
        "",
        " \n",
    ],
)
def test_sentences_are_lines_and_what_stands_between_them_is_kept(text, copies):
    read = TextLines.of([text], copies=copies, split=split)
    assert "".join(read.parts[0]) == text
    assert read.join(["" if is_letterless(text) and copies else line for line in read.lines]) == [
        text
    ]
    assert all(len(split(line)) == 1 for line in read.lines)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        (f"{ONE}. {TWO}.\u00a0{TWO}.", f"{ONE}.\n{TWO}.\n{TWO}."),
        (f" {ONE}. 42.\r\n\r{TWO}. {ONE}\n ", f" {ONE}.\n42.\n\n{TWO}.\n{ONE}\n "),
        ("犬。犬。", "犬。\n犬。"),
        (f"{ONE}.\r\n {TWO}. \n\n42.", f"{ONE}.\r\n {TWO}. \n\n42."),
        (f" {ONE}. ", f" {ONE}. "),
        (" \n", " \n"),
    ],
)
def test_sentences_become_lines_of_a_document_and_lines_of_one_stay(text, read_as, copies):
    texts = [text, joined_source(["fr"], [text], "")]
    read = TextLines.of(texts, apart=False, copies=copies, split=split, joins=True)
    assert read.lines == [read_as, f"<fr> {read_as}"]
    assert read.lines[1].head == 5
    assert read.copied == 0
    tidy = [line.removeprefix("<fr> ").strip() for line in read.lines]
    if read_as == text:
        assert read.join(tidy) == tidy
    else:
        assert read.join(read.lines) == [text, f"<fr> {text}"]
        assert read.join(tidy)[1].split() == text.split()
        assert "".join(read.sentences[0]) == text


def test_outputs_that_lose_sentences_of_a_document_keep_their_lines():
    read = TextLines.of(
        [f"{ONE}. {TWO}.", f"{ONE}. {TWO}.\n{ONE}"], apart=False, split=split, joins=True
    )
    assert read.join(["x\n\ny\nz", "x\ny"]) == ["x y z", "x\ny"]
    assert read.join(["", ""]) == ["", ""]


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(
    "text", [ONE, f" {ONE}. ", f"{ONE}\n {TWO}.\u00a0\n\n42.", "4\u00ad2. ", "\u00ad", "", " \n"]
)
def test_lines_of_one_sentence_are_read_as_without_splitting(text, copies):
    texts, options = [text, joined_source(["fr"], [text], "")], (True, copies, "\u00ad\u00a0")
    read, whole = TextLines.of(texts, *options, split), TextLines.of(texts, *options)
    assert read.lines == whole.lines
    assert read.texts == whole.texts
    assert read.copied == whole.copied


def test_sentences_are_generated_as_if_given_singly(loaded):
    text = f"{ONE}. {TWO}.\u00a0{TWO}.\n\n1\u00ad2. {ONE}."
    read = TextLines.of([text, TWO, "4. 2."], True, True, "\u00a0\u00ad", split)
    first, second, only = (loaded.generate(line) for line in (f"{ONE}.", f"{TWO}.", TWO))
    joined = f"{first} {second}\u00a0{second}\n\n1\u00ad2. {first}"
    assert read.join(loaded.generate(read.lines)) == [joined, only, "4. 2."]
    assert read.copied == 2


def test_lines_that_the_model_does_not_read_are_not_split():
    seen = []
    texts = [f"4. 2.\n \n{ONE}. 42.", "4. 2.", ""]
    TextLines.of(texts, copies=True, split=lambda *line: seen.append(line) or split(*line))
    assert seen == [(f"{ONE}. 42.", "")]


def test_tags_stand_before_every_sentence():
    read = TextLines.of([joined_source(["fr"], [f"{ONE}. {TWO}.\n{ONE}"], "")], split=split)
    assert read.lines == [f"<fr> {ONE}.", f"<fr> {TWO}.", f"<fr> {ONE}"]
    assert [line.head for line in read.lines] == [5, 5, 5]


def test_who_splits_is_told_the_tags():
    seen = []
    text = joined_source(["fr"], [f"{ONE}\n{TWO}"], "")
    TextLines.of([text], split=lambda *line: seen.append(line) or split(*line))
    assert seen == [(ONE, "<fr> "), (TWO, "<fr> ")]


def test_outputs_of_sentences_that_touch_get_a_space_if_their_script_has_spaces():
    read = TextLines.of(["犬。猫。\n\n鳥。"], split=split)
    assert read.join(["A dog.", "A cat.", "A bird."]) == ["A dog. A cat.\n\nA bird."]
    assert read.join(["개.", "고양이.", "새."]) == ["개. 고양이.\n\n새."]
    for lines in (["犬。", "猫。", "鳥。"], ["A dog. ", "", ""], ["", "A cat.", ""]):
        first, second, third = lines
        assert read.join(lines) == [f"{first}{second}\n\n{third}"]
