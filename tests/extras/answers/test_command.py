"""Question answering from the command line, from data to answers."""

import io
import json
import re
import sys

import pytest

import seqattn
from seqattn.extras.answers.scorers import QaScorer
from tests.absent import of_extra
from tests.cli.small import json_lines, refusal, refused_before_work, succeed, write_questions
from tests.cli.test_tasks import PAIRS, TINY, trained

SPANS = (*TINY, "loader.window=64", "loader.stride=32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("answers")
    write_questions(root / "questions")
    write_questions(root / "unanswerable", unanswerable=6)
    return root


def answering(folder, questions="questions", model="span_rnn"):
    extra = ("model.ffn_dim=16", "position=sinusoidal") if model == "span_transformer" else ()
    words = ["task=qa", f"model={model}", "data=squad", f"data.root={folder / questions}"]
    return trained(folder, f"{questions}-{model}", *words, *SPANS, *extra)


@pytest.mark.parametrize("model", ["span_rnn", "span_transformer"])
def test_a_question_gets_a_span_with_its_characters_and_probability(folder, capfd, model):
    run_dir = answering(folder, model=model)
    context = "Ann met Dan in town."
    source = folder / "asked.jsonl"
    rows = [
        {"id": 7, "question": "Who met Dan?", "context": context},
        {"question": "Who?", "context": ""},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"bundle={run_dir / 'model'}", f"input={source}", "generation.answers=2"]
    first, second = json_lines(succeed(capfd, "generate", *words))
    assert (first["id"], first["question"]) == (7, "Who met Dan?")
    assert first["answer"] == context[first["start"] : first["end"]] != ""
    assert 0 < first["others"][0]["probability"] <= first["probability"] < 1
    assert 0 < first["no_answer"] < 1
    assert (second["answer"], second["start"], second["no_answer"]) == ("", None, 1.0)
    bundle = seqattn.load(str(run_dir / "model"))
    assert bundle.answer(["Who met Dan?"], [context])[0].answers[0].text == first["answer"]


def test_an_evaluation_of_answers_writes_what_the_official_scorer_reads(folder, capfd, tmp_path):
    run_dir = answering(folder)
    shown = succeed(capfd, "evaluate", f"bundle={run_dir / 'model'}", f"output={tmp_path}")
    assert "EM" in shown
    predictions = json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))
    assert list(predictions) == [str(n) for n in range(25)]
    assert list(json.loads((tmp_path / "no_answer.json").read_text(encoding="utf-8"))) == list(
        predictions
    )
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert set(scores["scores"]) == {"EM", "F1"}


def test_answers_that_cannot_be_located_are_scored_as_texts(folder, capfd, tmp_path):
    """Questions whose gold answer was in other letters than the context left EM and F1 silently."""
    model = seqattn.load(answering(folder) / "model")
    context = "Maria took the green knife. Later Maria gave it to Hugo."
    best = model.answer("Who has it?", context, threshold=1.0)[0].answers[0]
    texts = [[best.text.upper()], ["nowhere at all"], ["Hugo", "to  Hugo"]]
    entries = [
        {
            "id": str(number),
            "question": "Who has it?",
            "answers": [{"text": text, "answer_start": 51} for text in some],
        }
        for number, some in enumerate(texts)
    ]
    form = {"data": [{"paragraphs": [{"context": context, "qas": entries}]}]}
    file = tmp_path / "gold.json"
    file.write_text(json.dumps(form))
    bundle, split = f"bundle={model.path}", ("data=squad", f"data.files.val={file}", "split=val")
    words = (bundle, *split, "generation.threshold=1", f"output={tmp_path}/scored")
    out = succeed(capfd, "evaluate", *words)
    scores = json.loads((tmp_path / "scored" / "scores.json").read_text())
    gold = {str(number): some for number, some in enumerate(texts)}
    want = QaScorer().score(dict.fromkeys(gold, best.text), gold)
    assert {one.name: one.value for one in want} == {
        name: one["value"] for name, one in scores["scores"].items()
    }
    assert scores["questions"] == 3
    assert "3 answers not in their context (compared as text only)" in out


def test_a_threshold_for_no_answer_is_chosen_in_training_and_kept_in_the_bundle(folder, capfd):
    run_dir = answering(folder, "unanswerable")
    bundle = seqattn.load(str(run_dir / "model"))
    threshold = bundle.config["generation"]["threshold"]
    assert 0 <= threshold < 1
    assert "val/NoAns_em" in bundle.scores
    lines = succeed(
        capfd, "evaluate", f"bundle={run_dir / 'model'}", "split=val", f"output={folder / 'kept'}"
    )
    assert "unanswered" in lines
    none = json.loads((folder / "kept" / "no_answer.json").read_text(encoding="utf-8"))
    predictions = json.loads((folder / "kept" / "predictions.json").read_text(encoding="utf-8"))
    assert all((predictions[name] == "") == (none[name] > threshold) for name in predictions)


@pytest.mark.parametrize("words", ["task.final=null", "task.final.splits=[test]"])
def test_a_bundle_has_its_threshold_whatever_is_scored(folder, words):
    data = ["task=qa", "model=span_rnn", "data=squad", f"data.root={folder / 'unanswerable'}"]
    name = re.sub(r"\W", "", words)
    bundle = seqattn.load(trained(folder, name, *data, *SPANS, words) / "model")
    whole = seqattn.load(answering(folder, "unanswerable") / "model")
    assert bundle.config["generation"] == whole.config["generation"]
    assert "val/em" not in bundle.scores


@pytest.mark.exhaustive
def test_answers_in_own_words_come_from_the_same_questions(folder, capfd, monkeypatch, tmp_path):
    data = ["task=qa_generative", "data=squad", f"data.root={folder / 'questions'}"]
    run_dir = trained(folder, "generative", *data, *PAIRS, "model.ffn_dim=16")
    line = json.dumps({"question": "Who met Dan?", "context": "Ann met Dan in town."})
    typed = io.TextIOWrapper(io.BytesIO(f"{line}\n\n{line}\n".encode()))
    monkeypatch.setattr(sys, "stdin", typed)
    rows = json_lines(succeed(capfd, "generate", f"bundle={run_dir / 'model'}"))
    assert [set(row) for row in rows] == [{"question", "answer"}] * 2
    succeed(capfd, "evaluate", f"bundle={run_dir / 'model'}", f"output={tmp_path}")
    assert len(json.loads((tmp_path / "predictions.json").read_text(encoding="utf-8"))) == 25
    asked = ("question=Who met Dan?", f"context={'Ann met Dan in town. ' * 90}")
    bundle, output = f"bundle={run_dir / 'model'}", f"output={tmp_path}/pictures"
    said = succeed(capfd, "analyze", bundle, *asked, output).splitlines()
    assert said[0].startswith("source:    question: Who met Dan? context: Ann met Dan in town. ")
    [read] = [line for line in said if "windows" in line]
    assert re.fullmatch(r"windows:   \d+ \(plotting number \d+\)", read)
    assert (tmp_path / "pictures" / "cross.png").is_file()
    refused = refusal(capfd, "analyze", bundle, "text=Who?", output)
    assert (
        refused == "this bundle reads question and context, got text; use question=... context=..."
    )


def test_a_picture_shows_what_the_context_asks(folder, capfd, tmp_path):
    bundle = f"bundle={answering(folder) / 'model'}"
    words = ["question=Who met Dan?", "context=Ann met Dan in town.", f"output={tmp_path}"]
    assert "answer: " in succeed(capfd, "analyze", bundle, *words)
    assert (tmp_path / "question.png").read_bytes()[:4] == b"\x89PNG"
    told = refusal(capfd, "analyze", bundle, *words, "target=Ann")
    assert told == "this bundle answers with spans and generates no text; remove target"
    told = refusal(capfd, "analyze", bundle, *words, "text=Ann met Dan.")
    assert told.startswith("this bundle reads question and context, got text and question and ")
    words[1] = f"context={' '.join('Eve met Ben in town.' for _ in range(9))} Ann ☃ met Dan."
    succeed(capfd, "analyze", bundle, *words, "format=svg", "heads=true")  # of several windows
    assert {path.name for path in tmp_path.glob("*.svg")} >= {"question.svg"}
    text = refusal(capfd, "analyze", bundle, f"output={tmp_path}", "text=Who?")
    assert text == "this bundle reads question and context, got text; use question=... context=..."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "task=qa model=transformer",
            "task=qa does not support model=transformer; choose from span_rnn, span_transformer",
        ),
        (
            "model=span_rnn",
            "task=translation does not support model=span_rnn; choose from ",
        ),
        (
            "task=qa data=demo_translation",
            "task=qa does not support data=demo_translation; choose from demo_qa, squad",
        ),
        (
            "task=qa data=parallel_text",
            "task=qa does not support data=parallel_text; choose from d",
        ),
        ("task=qa data=table", "task=qa does not support data=table; choose from demo_qa, squad"),
        (
            "task=qa data=parallel_text model=transformer loader=pairs",
            "task=qa does not support model=transformer, data=parallel_text or loader=pairs; "
            "choose from model=span_rnn|span_transformer data=demo_qa|squad loader=spans",
        ),
        ("task=qa generation=beam", "task=qa does not support generation=beam; choose from spans"),
        (
            "task=summarization loader=spans",
            "task=summarization does not support loader=spans; choose from",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    text = refused_before_work(*words.split())
    assert text.startswith(message), text


def test_converting_what_answers_by_spans_is_refused(folder, capfd, tmp_path):
    of_extra("convert.convert")
    words = [f"bundle={answering(folder) / 'model'}", "heads=mqa", f"output={tmp_path / 'new'}"]
    said = refusal(capfd, "convert", *words)
    assert said.startswith("pooling needs a bundle that outputs text, but ")


def test_what_answers_by_spans_is_scored_and_written_in_int8(folder, capfd, tmp_path):
    of_extra("convert.convert")
    words = [f"bundle={answering(folder) / 'model'}", "quantize=int8", f"output={tmp_path / 'new'}"]
    out = succeed(capfd, "convert", *words)
    assert "per second" in out
    assert "val F1" in out
    assert seqattn.load(tmp_path / "new").answer("Who met Dan?", "Ann met Dan in town.")


def test_one_question_is_answered_by_a_line_of_json(capfd, answering):
    bundle, context = f"bundle={answering}/model", "Ann met Dan in town."
    asked = ("question=Who met Dan, and where?", f"context={context}")
    [row] = json_lines(succeed(capfd, "generate", bundle, *asked, "n_best=3"))
    assert row["question"] == "Who met Dan, and where?"
    for one in (row, *row["others"]):
        assert context[one["start"] : one["end"]] == one["answer"]
    assert len(row["others"]) == 2
    assert refusal(capfd, "generate", bundle, "text=a") == (
        "this bundle reads question and context, got text; use question=... context=..."
    )
    told = refusal(capfd, "generate", bundle, *asked, "format=tsv")
    assert told == "answers are written as JSON lines; remove format=tsv"
