import json
import os
from contextlib import suppress
from pathlib import Path

import datasets
import pytest

from seqattn.data.base import Texts
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.answers.asked import read_questions
from seqattn.extras.answers.squad import AnswerPairs, Squad
from seqattn.extras.answers.squad_format import nearest
from tests.data.source_helpers import columns, refusal
from tests.growth import SIGNS, grows

SHARED = Path(os.environ.get("SEQATTN_DATA") or Path(__file__).parents[3] / "shared" / "data")
CONTEXT = "Zoë has a cat. The cat has a dog."


def entry(name, question, *answers, **more):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": question, "answers": found, **more}


def flat(name, question, texts, starts, **more):
    """A question as `datasets` holds it."""
    answers = {"text": texts, "answer_start": starts}
    return {"id": name, "question": question, "context": CONTEXT, "answers": answers, **more}


def document(*entries, context=CONTEXT):
    return {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": entries}]}]}


def write(folder, content, name="train.json"):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return Squad(str(folder))


def test_questions_come_with_their_answers_and_places(tmp_path):
    source = write(
        tmp_path,
        document(
            entry("1", "Who has a cat?", ("Zoë", 0)), entry("2", "What?", ("cat", 19), ("cat", 10))
        ),
    )
    assert columns(source.load("train")) == {
        "id": ["1", "2"],
        "question": ["Who has a cat?", "What?"],
        "context": [CONTEXT] * 2,
        "answers": [["Zoë"], ["cat", "cat"]],
        "starts": [[0], [19, 10]],
    }
    assert source.notices() == []  # nothing had to be mended


@pytest.mark.parametrize("name", ["q.json", "lines.json", "q.jsonl"])
def test_questions_come_as_objects_too(tmp_path, name):
    """As `datasets` holds them, in a list or one per line; for training as for generation."""
    rows = [
        flat(7, "Who has a cat?", ["Zoë"], [0]),
        flat("b", "What?", ["cat", "cow"], [10, 3], is_impossible=0),
        {**flat(None, "Why?", [], []), "is_impossible": 1},
        {
            "question": "Who?",
            "context": CONTEXT,
            "answers": [{"text": "dog"}],
            "is_impossible": None,
        },
    ]
    file = tmp_path / name
    file.write_text(json.dumps(rows) if name == "q.json" else "\n".join(map(json.dumps, rows)))
    source = Squad(files={"train": str(file), "val": str(file)})
    assert columns(source.load("val")) == {
        "id": ["7", "b", "question 3", "question 4"],
        "question": ["Who has a cat?", "What?", "Why?", "Who?"],
        "context": [CONTEXT] * 4,
        "answers": [["Zoë"], ["cat", "cow"], [], ["dog"]],
        "starts": [[0], [10, -1], [], [29]],
    }
    assert len(source.load("train")) == 4
    [asked] = read_questions(file)
    assert [one.id for _, one in asked] == [7, "b", None, None]


@pytest.mark.parametrize("name", [5, 1.5, ["a", 1], True])
def test_any_value_is_an_id(tmp_path, name):
    source = write(tmp_path, document(entry(name, "Who?", ("Zoë", 0))))
    assert columns(source.load("train"))["id"] == [json.dumps(name)]


def test_val_is_the_dev_file_and_test_the_test_file_or_nothing(tmp_path):
    source = write(tmp_path, document(entry("1", "Who?", ("Zoë", 0))), "dev.json")

    assert refusal(lambda: source.load("test")) == (
        f"the test split requires {tmp_path}/test.json, which does not exist; use split=val, "
        "the dev set (SQuAD's test set is not public)"
    )
    write(tmp_path, document(entry("2", "Which?", ("dog", 29))), "test.json")
    assert columns(source.load("test"))["id"] == ["2"]
    assert refusal(lambda: source.load("train")) == (
        f"{tmp_path}/train.json does not exist; expected a file in SQuAD format"
    )


def test_unanswerable_questions_have_no_answers_whatever_is_plausible(tmp_path):
    plausible = [{"text": "cat", "answer_start": 10}]
    source = write(
        tmp_path,
        document(
            entry("1", "Why?", is_impossible=True, plausible_answers=plausible),
            entry("2", "Who?", ("Zoë", 0), is_impossible=False),
        ),
    )
    assert columns(source.load("train"))["answers"] == [[], ["Zoë"]]
    assert source.notices() == ["2 train questions, 1 unanswerable"]


def test_answers_are_moved_to_the_nearest_place_or_dropped_and_this_is_told(tmp_path):
    source = write(
        tmp_path,
        document(
            entry("right", "a?", ("cat", 19)),
            entry("moved", "b?", ("cat", 16), ("dog", 0)),
            entry("half", "c?", ("bird", 3), ("Zoë", 1)),
            entry("lost", "d?", ("bird", 3)),
        ),
    )
    found = columns(source.load("train"))
    assert found["id"] == ["right", "moved", "half"]
    assert found["answers"] == [["cat"], ["cat", "dog"], ["Zoë"]]
    assert found["starts"] == [[19], [19, 29], [0]]
    assert source.notices() == [
        "4 train questions, 3 answer offsets corrected, "
        "2 answers dropped (not in their context), "
        "1 questions dropped (no answer left)"
    ]
    assert all(
        text == context[start : start + len(text)]
        for context, texts, starts in zip(found["context"], found["answers"], found["starts"])
        for text, start in zip(texts, starts)
    )


@pytest.mark.parametrize("start", range(-3, 12))
def test_the_nearest_place_is_that_of_looking_everywhere(start):
    context = "aba cabac"
    places = [place for place in range(len(context)) if context.startswith("ab", place)]
    best = min(places, key=lambda place: (abs(place - start), place))

    assert nearest(context, "ab", start) == best
    assert nearest(context, "x", start) == -1
    assert nearest(context, " ", start) == -1


def test_empty_questions_and_contexts_are_left_out_of_training_alone(tmp_path):
    content = document(entry("1", " ", ("Zoë", 0)), entry("2", "Who?", ("Zoë", 0)))
    content["data"] += document(entry("3", "Who?", ("Zoë", 0)), context="\n")["data"]
    source = write(tmp_path, content)
    write(tmp_path, content, "dev.json")

    assert columns(source.load("train"))["id"] == ["2"]
    found = columns(source.load("val"))
    assert found["id"] == ["1", "2", "3"]
    assert found["answers"] == [["Zoë"], ["Zoë"], ["Zoë"]]
    assert found["starts"] == [[0], [0], [-1]]
    assert source.notices() == [
        "3 train questions, 2 with an empty question or context (dropped)",
        "3 val questions, 1 answers not in their context (compared as text only), "
        "1 questions with only such answers (scored, but not in the loss), "
        "2 with an empty question or context (kept)",
    ]


@pytest.mark.parametrize("split", ["val", "test"])
def test_every_gold_answer_is_there_to_score_whether_it_can_be_located_or_not(tmp_path, split):
    decomposed = "Zoe\u0308"
    content = document(
        entry("located", "a?", ("cat", 19)),
        entry("other", "b?", ("Cat", 19), ("cat", 16), ("the  cat", 6)),
        entry("lost", "c?", (decomposed, 0), ("", 0)),
        entry("none", "d?", is_impossible=True),
    )
    source = write(tmp_path, content, "dev.json" if split == "val" else "test.json")
    found = columns(source.load(split))
    assert found["id"] == ["located", "other", "lost", "none"]
    assert found["answers"] == [["cat"], ["Cat", "cat", "the  cat"], [decomposed, ""], []]
    assert found["starts"] == [[19], [-1, 19, -1], [-1, -1], []]
    assert source.notices() == [
        f"4 {split} questions, 1 unanswerable, 1 answer offsets corrected, "
        "4 answers not in their context (compared as text only), "
        "1 questions with only such answers (scored, but not in the loss)"
    ]
    pairs = columns(AnswerPairs(source).load(split))
    assert pairs["references"] == [
        ["cat"],
        ["Cat", "cat", "the  cat"],
        [decomposed],
        ["unanswerable"],
    ]
    assert [found[0] for found in pairs["references"]] == pairs["target"]
    assert pairs["begin"][2:] == [-1, -1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"data": [\n{"paragraphs" []}]}',
            'is not valid JSON in SQuAD format ({"data": [{"paragraphs": [...]}]}), '
            "line 2 column 15: Expecting ':' delimiter",
        ),
        ("[]", "has no usable questions: 0 train questions"),
        ("3", "the file must be an object, got an integer"),
        ([flat("1", "a?", ["x"], [0, 1])], "row 1.answers must have as many starts as texts"),
        (
            [flat("1", "a?", [3], [0])],
            "row 1.answers[0] must have a string as 'text', got an integer",
        ),
        (
            [flat("1", "a?", [], []), {"question": "b?"}],
            "row 2 must have the key 'context', got 'question'",
        ),
        ({"rows": []}, "the file must have the key 'data', got 'rows'"),
        ({"data": {}}, "the file must have a list as 'data', got an object"),
        (
            {"data": [{"paragraphs": [3]}]},
            "data[0].paragraphs[0] must be an object, got an integer",
        ),
        (
            document({"id": "1", "question": "Who?"}),
            "data[0].paragraphs[0].qas[0] must have the key 'answers', got 'id', 'question'",
        ),
        (
            document(entry("1", "a?"), entry(2, "b?", is_impossible=3)),
            "data[0].paragraphs[0].qas[1] must have a boolean as 'is_impossible', got an integer",
        ),
        (
            document(entry("1", "a?", ("Zoë", "0"))),
            "data[0].paragraphs[0].qas[0].answers[0] must have an integer as 'answer_start', "
            "got a string",
        ),
        (
            document(entry("1", "a?"), entry(1, "b?")),
            "must have unique ids, but '1' occurs twice",
        ),
        (document(), "has no usable questions: 0 train questions"),
    ],
)
def test_what_is_not_squads_format_is_refused_with_its_place(tmp_path, content, message):
    source = write(tmp_path, content)
    said = refusal(lambda: source.load("train"))
    assert said.startswith(f"{tmp_path}/train.json")
    assert said.endswith(message)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "dev.json").write_bytes(b'{"a": "\xff"}')
    assert refusal(lambda: Squad(str(tmp_path)).load("val")) == (
        f"{tmp_path}/dev.json is not valid UTF-8 at byte 7"
    )


def test_questions_have_one_origin():
    assert refusal(lambda: Squad()) == (
        "questions must come from either data.root and data.files or data.dataset, "
        "got root=None, files=None, dataset=None; set the unused ones to null"
    )
    assert refusal(lambda: Squad("a", {"train": "b", "val": None}, dataset="c")).endswith(
        "got root=a, files={'train': 'b'}, dataset=c; set the unused ones to null"
    )
    mixed = Squad("a", {"val": "b.json", "train": None})
    assert (mixed.origin("val"), mixed.origin("train")) == ("b.json", "a/train.json")
    assert refusal(lambda: Squad(files={"dev": "x"})) == (
        "split must be one of train, val, test, got 'dev'"
    )
    alone = Squad(files={"train": "x.json", "val": None})
    assert refusal(lambda: alone.load("val")) == (
        "the data has no val split, only train; add data.files.val=FILE"
    )


def test_the_hub_gives_the_same_questions(monkeypatch, tmp_path):
    content = document(
        entry("1", "Who?", ("Zoë", 0)), entry("2", "What?", ("cat", 16)), entry("3", "Why?")
    )
    local = write(tmp_path, content, "dev.json").load("val")
    asked = []

    def load_dataset(name, config, split, cache_dir):
        asked.append((name, split))
        rows = [
            {
                "id": q["id"],
                "title": "t",
                "context": CONTEXT,
                "question": q["question"],
                "answers": {
                    "text": [a["text"] for a in q["answers"]],
                    "answer_start": [a["answer_start"] for a in q["answers"]],
                },
            }
            for q in content["data"][0]["paragraphs"][0]["qas"]
        ]
        if name == "odd":
            rows = [{"id": "1", "question": "Who?"}]
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    hub = Squad(dataset="rajpurkar/squad_v2")

    assert columns(hub.load("val")) == columns(local)
    assert asked == [("rajpurkar/squad_v2", "validation")]
    assert hub.notices() == ["3 val questions, 1 unanswerable, 1 answer offsets corrected"]
    assert refusal(lambda: Squad(dataset="odd").load("train")) == (
        "odd (train) has no column 'context' as in SQuAD, only id, question"
    )


def test_questions_as_pairs_are_texts_with_all_their_answers(tmp_path):
    content = document(
        entry("1", "Who?", ("Zoë", 0), ("cat", 10), ("Zoë", 0)),
        entry("2", "Why?", is_impossible=True),
    )
    pairs = AnswerPairs(write(tmp_path, content))
    found = pairs.load("train")

    assert columns(found) == {
        "id": ["1", "2"],
        "question": ["Who?", "Why?"],
        "context": [CONTEXT] * 2,
        "answers": [["Zoë", "cat", "Zoë"], []],
        "source": [f"question: Who? context: {CONTEXT}", f"question: Why? context: {CONTEXT}"],
        "target": ["Zoë", "unanswerable"],
        "references": [["Zoë", "cat"], ["unanswerable"]],
        "head": [24, 24],
        "begin": [24, -1],
        "end": [27, -1],
    }
    assert Texts.of(found).references == [["Zoë", "cat"], ["unanswerable"]]
    answerable = AnswerPairs(write(tmp_path, content), unanswerable=False)
    assert columns(answerable.load("train"))["id"] == ["1"]
    write(tmp_path, document(entry("1", "Why?", is_impossible=True)))
    assert refusal(lambda: answerable.load("train")) == (
        "the train split has no questions with an answer"
    )


def test_pairs_of_questions_train_like_any_others(tmp_path):
    content = document(entry("1", "Who?", ("Zoë", 0)), entry("2", "What?", ("cat", 10)))
    write(tmp_path, content)
    source = AnswerPairs(write(tmp_path, content, "dev.json"))
    data = Seq2SeqData(
        source, TokenizerConfig("bpe", 40), LoaderOptions(), cache_dir=str(tmp_path / "cache")
    )
    rows = {}
    for [batch] in data.loader("train"):
        rows.update(
            zip(batch.index.tolist(), data.tokenizer.decode_target(batch.target_output.tolist()))
        )
    assert rows == {0: "Zoë", 1: "cat"}


@pytest.mark.skipif(not (SHARED / "squad").is_dir(), reason="SQuAD is not here")
def test_every_answer_of_squad_stands_where_it_says():
    source = Squad(str(SHARED / "squad"))
    train, dev = source.load("train"), source.load("val")

    assert (len(train), len(dev)) == (7995, 1113)
    assert source.notices() == []  # nothing had to be mended
    for row in dev:
        for text, start in zip(row["answers"], row["starts"], strict=True):
            assert row["context"][start : start + len(text)] == text


@pytest.mark.parametrize("key", ["question", "context", "answer"])
def test_a_text_takes_no_more_time_than_its_length(key, tmp_path):
    def read(text):
        asked = {"id": "1", "question": "who"} | ({"question": text} if key == "question" else {})
        context = "x" if key == "question" else text
        asked["answers"] = [{"text": "a" if key == "context" else text, "answer_start": 0}]
        about = [{"context": context, "qas": [asked]}]
        (tmp_path / "q.json").write_text(json.dumps({"data": [{"paragraphs": about}]}))
        with suppress(UserError):
            Squad(files={"train": str(tmp_path / "q.json")}).load("train", tmp_path)
        nearest(context, text, 0)

    assert [sign for sign in SIGNS if grows(read, sign)] == []
