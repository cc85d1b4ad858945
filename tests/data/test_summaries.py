import os
from pathlib import Path

import pytest

from seqattn.data.base import Texts
from seqattn.data.email_threads import Threads
from seqattn.data.module import Seq2SeqData
from seqattn.data.sources import ParallelText
from seqattn.data.table import Aeslc, Table
from seqattn.data.vocabulary import TokenizerConfig
from tests.data.source_helpers import columns, json_lines, refusal

SHARED = Path(os.environ.get("SEQATTN_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.mark.parametrize(
    ("source", "target"),
    [("article", "highlights"), ("document", "summary"), ("dialogue", "summary")],
)
def test_columns_of_known_data_sets_are_found(tmp_path, source, target):
    rows = [{"id": "1", target: "short", source: "long text"}, {"id": "2", target: "s", source: ""}]
    found = Table({"train": json_lines(tmp_path / "t.jsonl", rows)}).load("train")

    assert columns(found) == {"source": ["long text", ""], "target": ["short", "s"]}


def test_the_first_known_pair_that_fits_what_is_named_is_taken(tmp_path):
    row = {"source": "a", "target": "b", "text": "c", "title": "d", "summary": "e"}
    files = {"train": json_lines(tmp_path / "t.jsonl", [row])}

    def found(**named):
        return {
            side: texts[0] for side, texts in columns(Table(files, **named).load("train")).items()
        }

    assert found() == {"source": "a", "target": "b"}
    assert found(source_column="text") == {"source": "c", "target": "e"}
    assert found(target_column="title") == {"source": "c", "target": "d"}
    assert found(source_column="title") == {"source": "d"}
    assert found(source_column="title", target_column="text") == {"source": "d", "target": "c"}


def test_unknown_columns_are_refused_with_those_that_are_known_and_there(tmp_path):
    files = {"train": json_lines(tmp_path / "t.jsonl", [{"mail": "a", "summary": "b"}])}

    message = refusal(lambda: Table(files).load("train"))
    assert message.startswith(
        f"{tmp_path}/t.jsonl has no known pair of columns (source/target, "
        "document/summary, article/highlights, "
    )
    assert message.endswith("), only mail, summary; set data.source_column and data.target_column")


def test_references_are_lists_with_one_text_at_least(tmp_path):
    rows = [
        {"text": "a", "title": "b", "others": ["c", "d"]},
        {"text": "e", "title": "f", "others": []},
        {"text": "g", "title": "h", "others": None},
    ]
    files = {"train": json_lines(tmp_path / "t.jsonl", rows)}
    found = Table(files, references_column="others").load("train")

    assert columns(found) == {
        "source": ["a", "e", "g"],
        "target": ["b", "f", "h"],
        "references": [["c", "d"], ["f"], ["h"]],
    }
    assert Texts.of(found).references == [["c", "d"], ["f"], ["h"]]
    assert Texts.of(Table(files).load("train")).references == [["b"], ["f"], ["h"]]
    assert refusal(lambda: Table(files, references_column="title").load("train")) == (
        f"column 'title' of {tmp_path}/t.jsonl must contain lists of strings, got other values"
    )
    (tmp_path / "train.en").write_text("x\n")
    alone = ParallelText(str(tmp_path), "en", None).load("train")
    assert Texts.of(alone).references == []


def test_a_line_that_is_no_json_object_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    good = '{"source": "a", "target": "b"}\n'

    def message(text):
        path.write_text(text)
        return refusal(lambda: Table({"train": str(path)}).load("train"))

    head = f"cannot read {path} as jsonl: "
    assert message(good * 2 + '{"source": a}\n' + good) == (
        f"{head}line 3 is not valid JSON: Expecting value at column 12"
    )
    assert message(good + '["a", "b"]\n') == f"{head}line 2 must be a JSON object, got a list"
    assert message(good + '{"source": "a", "ta').startswith(f"{head}line 2 is not valid JSON")
    path = tmp_path / "t.json"
    head = f"cannot read {path} as json: "
    assert message('[{"source": "a"},\n {"source" "b"}]') == (
        f"{head}line 2 is not valid JSON: Expecting ':' delimiter at column 12"
    )


def test_aeslc_scores_against_its_original_subjects_or_all(tmp_path):
    json_lines(tmp_path / "train.jsonl", [{"id": "1", "document": "Hi all", "summary": "greeting"}])
    row = {"id": "2", "document": "Bye", "summary": "end", "references": ["end", "farewell"]}
    json_lines(tmp_path / "dev.jsonl", [row])

    plain, several = Aeslc(str(tmp_path)), Aeslc(str(tmp_path), all_references=True)
    assert refusal(lambda: plain.load("test")) == (
        f"the test split requires {tmp_path}/test.jsonl, which does not exist; use "
        "split=val for dev.jsonl"
    )
    assert columns(plain.load("train")) == {"source": ["Hi all"], "target": ["greeting"]}
    assert columns(several.load("train")) == columns(plain.load("train"))
    assert Texts.of(plain.load("val")).references == [["end"]]
    assert Texts.of(several.load("val")).references == [["end", "farewell"]]
    assert list(several.load("val")["target"]) == ["end"]
    json_lines(tmp_path / "test.jsonl", [{**row, "summary": "test"}])
    assert Texts.of(plain.load("test")).references == [["test"]]
    (tmp_path / "test.jsonl").unlink()
    (tmp_path / "dev.jsonl").unlink()
    assert refusal(lambda: plain.load("val")) == (
        f"{tmp_path}/dev.jsonl does not exist; expected a text file"
    )


LONG = "please find attached the revised draft of our master agreement with the bank for review"


@pytest.mark.parametrize(
    ("document", "subject", "shares"),
    [
        ("Anything else", "RE: Fw:  gas deal!", True),  # the subject but for marks and signs
        ("Anything else", "Gas deals", False),
        ("Anything else", "Re:", False),  # no subject is nobody's
        (f"As I said. {LONG.upper()}", "Draft", True),  # quoted
        (f"{' '.join(LONG.split()[:8])} and no more words", "Draft", True),  # 1 run of 5
        (f"{' '.join(LONG.split()[:8])} and no more words today", "Draft", False),  # 1 of 6
        ("please find attached the revised draft", "Draft", False),  # shorter than a run
    ],
)  # fmt: skip
def test_a_mail_shares_a_thread_by_its_subject_or_by_what_it_quotes(document, subject, shares):
    threads = Threads([LONG, "Hi"], ["Re: Gas Deal", "FW:"])
    assert threads.share(document, subject) == shares


def test_of_val_and_test_the_mails_of_new_threads_can_be_taken(tmp_path):
    json_lines(tmp_path / "train.jsonl", [{"document": "Hi all", "summary": "greeting"}] * 2)
    rows = [{"document": "Hi", "summary": x, "references": [x]} for x in ("RE: Greeting", "end")]
    for name in ("dev", "test"):
        json_lines(tmp_path / f"{name}.jsonl", rows)
    new = Aeslc(str(tmp_path), new_threads=True)
    assert [len(new.load(split)) for split in ("train", "val", "test")] == [2, 1, 1]
    assert list(new.load("val")["target"]) == ["end"]
    assert len(Aeslc(str(tmp_path)).load("val")) == 2


def test_documents_of_nothing_and_references_do_not_keep_data_from_training(tmp_path):
    rows = [{"document": "Hi all", "summary": "greeting"}, {"document": " ", "summary": "x"}]
    json_lines(tmp_path / "train.jsonl", [*rows, {"document": None, "summary": "y"}])
    json_lines(tmp_path / "dev.jsonl", [{**rows[0], "references": ["greeting", "z"]}])
    data = Seq2SeqData(
        Aeslc(str(tmp_path), all_references=True),
        TokenizerConfig("bpe", 20),
        cache_dir=str(tmp_path / "cache"),
    )
    data.load()

    assert [line.partition("; read from ")[0] for line in data.notices()] == [
        "dropped 2 of 3 train pairs: 0 longer than 256 tokens, 2 with an empty side",
        "kept all 1 val pairs",
    ]


@pytest.mark.skipif(not (SHARED / "aeslc").is_dir(), reason="AESLC is not here")
def test_aeslc_is_read_whole():
    source = Aeslc(str(SHARED / "aeslc"), all_references=True)
    train, dev = source.load("train"), source.load("val")

    assert (len(train), len(dev)) == (14436, 1960)
    rows = zip(dev["target"], Texts.of(dev).references, strict=True)
    assert all(target in references for target, references in rows)


@pytest.mark.exhaustive
@pytest.mark.skipif(not (SHARED / "aeslc").is_dir(), reason="AESLC is not here")
def test_three_quarters_of_aeslcs_dev_begin_a_thread():
    assert len(Aeslc(str(SHARED / "aeslc"), new_threads=True).load("val")) == 1480
