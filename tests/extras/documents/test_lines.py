"""Outputs of documents have as many lines as their texts."""

import pytest

import seqattn
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from tests.absent import has_extra
from tests.bundle.conftest import configuration, corpus, untrained
from tests.cli.small import json_lines, run

ONE, TWO = "a dog sees the cat", "two birds"
TEXTS = [f"{ONE}\n\n{TWO}\n", ONE, f"{TWO}\r\n{ONE}"]


def bundle_of(directory, documents, learnt=None):
    lines = [*corpus(), "A.\ndog.\nTwo\nbirds"]
    options = TokenizerConfig(vocab_size=40, line_breaks=True, normalization="nmt_nfkc")
    tokenizer = train_tokenizer(lines, lines, options, directory)
    config = configuration(data="parallel_text")
    config["data"] = {**config["data"], "documents": documents}
    config["text_options"] = learnt and {"sentences": learnt}
    return untrained(directory / "model", tokenizer, config)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("documents"), "lines")


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_text_that_loses_lines_is_generated_line_by_line(path, capsys, search):
    bundle = seqattn.load(path)
    one, two = (bundle.generate(text, search) for text in (ONE, TWO))
    assert "\n" not in bundle.generate(TEXTS[0], search, document_lines=None).strip()
    capsys.readouterr()
    assert bundle.generate(TEXTS, search) == [f"{one}\n\n{two}\n", one, f"{two}\n{one}"]
    assert capsys.readouterr().err == (
        "2 of 2 texts of several lines or sentences lost or gained some: generated one by one\n"
    )


def test_outputs_with_constraints_stay(path, capsys):
    bundle = seqattn.load(path)
    whole = bundle.generate(TEXTS[0], prefix="the", document_lines=None)
    capsys.readouterr()
    assert bundle.generate(TEXTS[0], prefix="the") == whole
    assert (
        "1 of 1 texts of several lines or sentences lost or gained some; "
        in capsys.readouterr().err
    )


def test_models_of_single_pairs_read_whole_texts(tmp_path, capsys):
    bundle = seqattn.load(bundle_of(tmp_path, None))
    capsys.readouterr()
    assert bundle.generate(TEXTS) == bundle.generate(TEXTS, document_lines=None)
    assert not capsys.readouterr().err


@pytest.mark.skipif(not has_extra("sentences"), reason="the extra is deleted")
def test_sentences_of_a_line_are_read_as_lines(tmp_path, capsys):
    learnt = {"rows": 9, "several": 0, "longest": 40, "language": "en"}
    bundle = seqattn.load(bundle_of(tmp_path, "lines", learnt))
    one, two = f"{ONE.capitalize()}.", f"{TWO.capitalize()}."
    lines = bundle.generate([f"{one}\n{two}", one])
    capsys.readouterr()
    assert bundle.generate([f"{one} {two}", one]) == [lines[0].replace("\n", " "), lines[1]]
    assert capsys.readouterr().err == (
        "1 line read as 2 sentences (en); sentences=none reads lines\n"
        "1 of 1 texts of several lines or sentences lost or gained some: generated one by one\n"
    )
    assert bundle.generate(f"{one} {two}", sentences="none") != lines[0].replace("\n", " ")
    assert "read" not in capsys.readouterr().err


def test_commands_do_so_for_every_hypothesis(capfd, path, tmp_path):
    rows = [f'{{"text": "{ONE}\\n{TWO}"}}', f'{{"text": "{TWO}"}}']
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    words = (f"bundle={path}", f"input={tmp_path}/in.jsonl", "format=jsonl", "n_best=2")
    ended = run(capfd, "generate", *words)
    outputs = [row["output"] for row in json_lines(ended.out) if row["line"] == 1]
    bundle = seqattn.load(path)
    each = [bundle.hypotheses([text], n_best=2)[0] for text in (ONE, TWO)]
    decode = bundle.tokenizer.decode_target
    lines = [decode([hypothesis.ids for hypothesis in some]) for some in each]
    assert outputs == ["\n".join(pair) for pair in zip(*lines, strict=True)]
    score = json_lines(ended.out)[0]["score"]
    assert score == pytest.approx(sum(some[0].score for some in each))
    assert "1 of 1 texts of several lines" in ended.err


def test_samples_of_lines_are_drawn_by_the_number_of_their_text(path):
    bundle = seqattn.load(path)
    lost = f"{ONE}\n{TWO}"
    texts = [lost, ONE, lost, lost]
    outputs = bundle.generate(texts, "sampling")
    assert len({outputs[at] for at in (0, 2, 3)}) == 3
    assert bundle.generate([ONE, TWO, lost, ONE], "sampling")[2] == outputs[2]
