"""Prefixes of outputs, whose last words are complete or not."""

import json

import pytest

import seqattn
from seqattn.bundle.prefixes import Prefixes
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.generation.forced_decoding import forced_log_probabilities
from tests.bundle.conftest import TEXT
from tests.cli.small import json_lines, refusal, succeed

TEXTS = ["a dog sees", "the cat", "two birds", "an old house by the tree"]
PREFIXES = ["the tr", "a d", "the old ", "so"]


@pytest.fixture(scope="module")
def loaded(bundle):
    return seqattn.load(bundle)


@pytest.mark.parametrize("name", ["greedy", "beam", "sampling", "mbr"])
def test_outputs_begin_with_the_text_of_their_prefix(loaded, name):
    outputs = loaded.generate(TEXTS, name, prefix=PREFIXES)
    for output, prefix in zip(outputs, PREFIXES):
        assert output.startswith(prefix.strip())
        if prefix.endswith(" "):
            assert not output[len(prefix) - 1 :][:1].isalnum()
    alone = [loaded.generate([text], name, prefix=one) for text, one in zip(TEXTS, PREFIXES)]
    if name not in ("sampling", "mbr"):  # which draw by the place in the input
        assert outputs == [text for [text] in alone]
    assert loaded.generate(["", *TEXTS], name, prefix="so")[0] == ""


def test_a_piece_may_reach_beyond_an_unfinished_word_and_not_beyond_a_complete_one(loaded):
    read, pieces = Prefixes(loaded.tokenizer).read, loaded.tokenizer.target_pieces
    for word in ("sees", "birds", "old"):
        cut = read(word[:-1], 1)
        text = "".join(pieces(cut.ids)).removeprefix("▁")
        for number, tokens in enumerate(cut.ends):
            chain = cut.ids[: len(cut.ids) + 1 - len(cut.ends) + number]
            for piece in pieces(tokens):
                reached = ("".join(pieces(chain)) + piece).removeprefix("▁")
                assert reached.startswith(word[:-1])
                assert reached.startswith(text)
        [canonical] = loaded.tokenizer.encode_target([word[:-1]])
        assert canonical[-2] in cut.ends[-1]
        complete = read(f"{word} ", 1)
        assert [*complete.ids] == loaded.tokenizer.encode_target([word])[0][:-1]
        assert all(not piece[0].isalnum() for piece in pieces(complete.ends[0]))


def test_only_ends_that_fit_in_a_piece_are_looked_up(loaded):
    prefixes = Prefixes(loaded.tokenizer)
    cut = prefixes.read("see" * 2_000, 1)
    assert len(cut.ids) > 3_000
    assert 0 < len(cut.ends) <= max(map(len, prefixes.pieces))


def test_log_probabilities_are_those_of_the_whole_output(loaded):
    [(best, *_)] = loaded.hypotheses(TEXTS[:1], "greedy", prefix="the old ")
    pair = loaded.encode(TEXTS[0])[0][0], loaded.with_end_mark(best.ids)
    ended = forced_log_probabilities(loaded.model, [pair, (pair[0], best.ids)])  # or cut
    assert min(abs(best.log_probability - total) for total in ended) < 1e-4


def test_words_of_byte_level_vocabularies_begin_with_a_space():
    pytest.importorskip("tokenizers")
    from tests.data.test_byte_level import learnt

    tokenizer = Tokenizer(learnt())
    read, pieces = Prefixes(tokenizer).read, tokenizer.target_pieces
    after, cut = read("the cat ", 1), read("the ca", 1)
    assert "▁dog" in pieces(after.ends[0])
    assert not any(one[0].isalnum() for one in pieces(after.ends[0][1:]))
    assert pieces(cut.ids[:1]) == ["the"]
    assert "▁cat" in pieces(cut.ends[0])


def test_letters_of_scripts_without_spaces_continue_no_word_of_others(tmp_path):
    texts = ["AIは犬 x3", "犬 A"]
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(kind="characters"), tmp_path)
    after = tokenizer.target_pieces(Prefixes(tokenizer).read("AI ", 1).ends[0][1:])
    assert {*after} == {"は", "犬", "▁"}


@pytest.mark.parametrize(
    ("texts", "prefix", "line"),
    [
        (TEXTS, ["a"], "prefix must be one text, or one for each of 4 inputs"),
        (TEXTS, ["a", "a", "☃", "a"], "prefix '☃' of input 3 contains text that the target voc"),
        (["a dog\nthe cat"], "a", "a text has several lines; remove prefix, or pass each line by"),
        (TEXTS, "a " * 90, "prefix has "),
        (TEXTS, [1, 2, 3, 4], "input 1 must be text, got 1"),
    ],
)
def test_what_cannot_be_a_prefix_is_refused_in_a_line(loaded, texts, prefix, line):
    with pytest.raises(UserError) as error:
        loaded.generate(texts, "greedy", prefix=prefix)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_markup_and_models_of_one_language_refuse_more(loaded):
    with pytest.raises(UserError, match="markup does not support prefix; remove one"):
        loaded.generate(TEXT, markup="html", prefix="a")
    line = "target_language=deu_Latn is not in this vocabulary; its model is not multilingual"
    with pytest.raises(UserError, match=line):
        loaded.generate(TEXT, target_language="deu_Latn")


def test_a_column_beside_each_line_or_a_key_of_each_object_holds_its_prefix(
    capfd, bundle, loaded, tmp_path
):
    expected = loaded.generate(TEXTS, prefix=PREFIXES)
    rows = [*zip(TEXTS, PREFIXES, strict=True)]
    (tmp_path / "a.tsv").write_text("".join(f"{text}\tx\t{one}\n" for text, one in rows))
    lines = [json.dumps({"source": text, "begin": one}) for text, one in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name, column in (("a.tsv", 3), ("a.jsonl", "begin")):
        words = (f"bundle={bundle}", f"input={tmp_path / name}", f"prefix_column={column}")
        written = json_lines(succeed(capfd, "generate", *words, "format=jsonl"))
        assert [row["output"] for row in written] == expected
        assert [row["source"] for row in written] == TEXTS
    one = succeed(capfd, "generate", f"bundle={bundle}", f"text={TEXTS[0]}", "prefix=the tr")
    assert one == f"{expected[0]}\n"


@pytest.mark.parametrize(
    ("name", "content", "column", "line"),
    [
        ("a.tsv", "a\tb\na\n", "2", "a.tsv line 2 has no column 2 after the text and a tab"),
        ("a.tsv", "a\tb\n", "1", "a.tsv line 1 has no column 1 after the text and a tab"),
        ("a.tsv", "a\tb\n", "begin", "a.tsv line 1 has no column begin after the text and a tab"),
        ("a.jsonl", '{"source": "a", "b": 1}', "b", "a.jsonl line 1 has no text under b"),
        ("a.tsv", "a\tb\na\t☃\n", "2", "prefix '☃' of input 2 contains text that the target"),
    ],
)
def test_a_prefix_that_a_file_lacks_is_named_by_its_line(
    capfd, bundle, tmp_path, name, content, column, line
):
    (tmp_path / name).write_text(content)
    words = (f"bundle={bundle}", f"input={tmp_path / name}", f"prefix_column={column}")
    assert line in refusal(capfd, "generate", *words)
    said = refusal(capfd, "generate", f"bundle={bundle}", "text=a", "prefix_column=2")
    assert said == "prefix_column needs input, and no prefix; remove one"
