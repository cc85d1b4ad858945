"""Summarization from the command line, from data to outputs."""

import json

import pytest

import seqattn
from seqattn.data.lines import read_texts
from seqattn.errors import UserError
from seqattn.generation import GreedySearch
from seqattn.training import setup
from tests.cli.small import (
    json_lines,
    refused_before_work,
    succeed,
    train,
    write_documents,
)

TINY = (
    "model.dim=12",
    "model.encoder_layers=1",
    "loader.max_tokens=256",
    "trainer=cpu",
    "trainer.max_steps=3",
    "trainer.max_epochs=-1",
    "schedule=constant",
    "schedule.warmup_steps=1",
)
PAIRS = (*TINY, "model.decoder_layers=1", "loader.max_length=64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("tasks")
    write_documents(root / "documents")
    return root


def trained(folder, name, *words):
    """A run, made at first use."""
    run_dir = folder / name
    if not run_dir.exists():
        train([*words, f"run_dir={run_dir}", f"cache_dir={folder / 'cache'}"])
    return run_dir


def summarizing(folder, name, *words):
    data = ["task=summarization", "data=aeslc", f"data.root={folder / 'documents'}"]
    return trained(folder, name, *data, *PAIRS, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("model.ffn_dim=16", "model.copy=true", "loader.max_source_length=64"),
        pytest.param(
            ("model=rnn", "model.copy=true", "loader.max_source_length=64"),
            marks=pytest.mark.exhaustive,
        ),
        (
            "model.ffn_dim=16",
            "loader.long_sources=window",
            "loader.max_source_length=8",
            "loader.window_stride=4",
        ),
    ],
    ids=["transformer copies", "rnn copies", "windows"],
)
def test_a_summarizer_trains_summarizes_and_is_scored_by_rouge(folder, capfd, words):
    run_dir = summarizing(folder, "-".join(words).replace("=", ""), *words)
    scores = json.loads((run_dir / "model" / "scores.json").read_text())
    assert {"val/rouge1", "val/rougeLsum", "val/novel_2-grams", "val/loss"} <= scores.keys()
    shown = succeed(capfd, "evaluate", f"bundle={run_dir / 'model'}", "generation=greedy")
    assert "ROUGE-L" in shown
    texts = seqattn.load(str(run_dir / "model")).generate(["Ann met Dan in town .", " "])
    assert len(texts) == 2
    assert texts[1] == ""


def test_documents_of_several_lines_come_as_json_and_their_summaries_leave_in_one(folder, capfd):
    rows = [
        {"body": "Ann met Dan.\nThey talked.", "head": "Ann meets Dan\nin town"},
        {"body": "Dan left.\n\nAnn stayed.", "head": "Dan leaves\nAnn stays"},
    ] * 4
    source = folder / "lines.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [f"data.files.{split}={source}" for split in ("train", "val")]
    columns = ("data.source_column=body", "data.target_column=head")
    learned = ("model.ffn_dim=16", "trainer.max_steps=60", "trainer.val_check_interval=60")
    learned += ("optimizer.lr=0.01", "loader.max_tokens=1000")
    words = (*PAIRS, "loader.max_source_length=64", *learned)
    run_dir = trained(folder, "lines", "task=summarization", "data=table", *files, *columns, *words)
    told = [f"bundle={run_dir / 'model'}", f"input={source}"]
    lines = succeed(capfd, "generate", *told).splitlines()
    assert len(lines) == len(rows)
    found = json_lines(succeed(capfd, "generate", *told, "format=jsonl"))
    assert [row["source"] for row in found] == [row["body"] for row in rows]
    assert any("\n" in row["output"] for row in found)
    assert [row["output"].replace("\n", " ") for row in found] == lines


@pytest.mark.parametrize("column", ["body", "mail.body"])
def test_documents_are_found_under_the_name_that_is_asked_for(folder, column):
    outer, _, inner = column.partition(".")
    source = folder / "named.jsonl"
    texts = ["Ann met Dan.", "", "They\ntalked."]
    rows = [{outer: {inner: text} if inner else text, "text": "no"} for text in texts]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [*read_texts(source, {"source_column": column})] == [[*enumerate(texts, 1)]]
    with pytest.raises(UserError, match=r'line 1 has no text under head; expected {"head": "..."}'):
        list(read_texts(source, {"source_column": "head"}))


def test_validation_while_training_bans_what_generation_bans(folder, monkeypatch):
    made = []

    def recorded(*args, **kwargs):
        made.append(GreedySearch(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(setup, "GreedySearch", recorded)
    words = (
        "model.ffn_dim=16",
        "loader.max_source_length=64",
        "processor=[no_repeat_ngram]",
        "generation.processors.no_repeat_ngram.size=2",
    )
    summarizing(folder, "bans", *words)
    assert [search.processors["no_repeat_ngram"].size for search in made] == [2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("task=summarization checkpoint.monitor=val/bleu", "checkpoint.monitor must be one of"),
        ("model=rnn attention=none model.copy=true", "model.copy=true needs attention weights"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    text = refused_before_work(*words.split())
    assert text.startswith(message), text
