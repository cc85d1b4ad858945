"""Files of questions, for training and for answering: what is read, and what is refused."""

import json

import numpy as np
import pytest

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.extras.answers.asked import Asked, read_questions
from seqattn.extras.answers.span_data import SpanData
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.squad import Squad
from seqattn.inputs import MAX_DEPTH
from tests.absent import printed_without
from tests.data.source_helpers import refusal
from tests.data.test_doors import DEEP
from tests.data.test_several_files import BOM, write

QUESTIONS = (
    '{"data": [{"paragraphs": [{"context": "Zoë has a cat.", "qas": [{"id": "1", '
    '"question": "Who?", "answers": [{"text": "cat", "answer_start": 3}]}, {"id": "2", '
    '"question": "What?", "answers": [{"text": "dog", "answer_start": 3}]}]}]}]}'
)


def test_json_that_nests_too_deeply_is_refused_with_its_line(tmp_path):
    (tmp_path / "train.json").write_bytes(b'{"data":\n' + b"[" * DEEP + b"]" * DEEP + b"}")
    says = f"must nest lists and objects at most {MAX_DEPTH} deep, line 2 is deeper"
    assert refusal(lambda: Squad(str(tmp_path)).load("train")) == f"{tmp_path}/train.json {says}"


def test_a_name_that_no_folder_can_have_is_refused(tmp_path):
    long = Squad(str(tmp_path / ("x" * 300)))
    assert "File name too long" in refusal(lambda: long.load("train"))


def test_what_a_bundle_needs_imports_without_its_training():
    program = """
import seqattn.extras.answers.span_batch, seqattn.extras.answers.span_text
print("without")
"""
    absent = ("datasets", "lightning", "hydra", "omegaconf", "pyarrow")
    assert printed_without(absent, program) == "without\n"


@pytest.mark.parametrize("mark", [b"", BOM])
def test_questions_of_lines_of_json_are_read(tmp_path, mark):
    row = {"question": "Who?", "context": "Ann.", "id": 7}
    (tmp_path / "t.jsonl").write_bytes(mark + b"\n" + json.dumps(row).encode())
    assert [*read_questions(tmp_path / "t.jsonl")] == [[(2, Asked("Who?", "Ann.", 7))]]


def test_questions_of_squad_are_read(tmp_path):
    file = tmp_path / "x.json"
    asked = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann.", "qas": [asked]}
    file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    assert [*read_questions(file)] == [[(1, Asked("Who?", "Ann.", "q"))]]
    # predicting needs no answers, and repeats an id whatever it is
    ids = [7, 1.5, True, None, ["a", {"b": 1}], "q", "absent"]
    qas = [{"id": one, "question": "Who?", "is_impossible": 3, "answers": 4} for one in ids]
    del qas[-1]["id"], qas[0]["answers"], qas[1]["is_impossible"]
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ann.", "qas": qas}]}]}))
    [found] = read_questions(file)
    assert [one.id for _, one in found] == [*ids[:-1], None]


def test_questions_follow_each_other_and_ids_stay_single(tmp_path):
    first = write(tmp_path / "a.json.gz", QUESTIONS, BOM)
    other = write(tmp_path / "b.json", QUESTIONS.replace('"1"', '"3"').replace('"2"', '"4"'))
    found = Squad(files={"train": [first, other]}).load("train")
    assert list(found["id"]) == ["1", "3"]
    twice = Squad(files={"train": [first, first]})
    assert "must have unique ids, but '1' occurs twice" in refusal(lambda: twice.load("train"))


def test_questions_are_read_and_tokenized_once(tmp_path, monkeypatch):
    for name in ("train.json", "dev.json"):
        (tmp_path / name).write_text(QUESTIONS)

    def module():
        config = TokenizerConfig("bpe", vocab_size=20)
        options = SpanOptions(window=8, stride=4, max_question=8)
        return SpanData(Squad(str(tmp_path)), config, options, str(tmp_path / "cache"))

    first = module()
    first.load()
    first.load()
    told = first.source.notices()
    assert told[0].startswith("2 train questions, 1 answer offsets corrected, 1 answers")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.arrow")}
    assert len([path for path in files if path.parent.name == "tokens"]) == 4

    def never(*_, **__):
        raise AssertionError("read again")

    monkeypatch.setattr("seqattn.extras.answers.squad_format.read_json", never)
    monkeypatch.setattr("seqattn.extras.answers.span_dataset.TextReader.context", never)
    again = module()
    again.load()
    again.load()
    assert again.source.notices() == told
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.arrow")} == files
    for mine, theirs in zip(again.loader("val"), first.loader("val"), strict=True):
        assert np.array_equal(mine.match, theirs.match)
        assert np.array_equal(mine.start, theirs.start)
