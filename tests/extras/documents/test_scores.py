"""Documents are scored as joined texts, and their sentences by position."""

import json

import pytest

from seqattn.bundle.outputs import Outputs
from seqattn.data.base import Texts
from seqattn.extras.documents.scores import DocumentScores
from seqattn.metrics.text import TextScorer
from tests.cli.small import run

SOURCES = ["a", "b", "", "c", "d", "e", ""]
TARGETS = ["eins zwei drei vier", "fünf sechs sieben acht", "", *"xyz", ""]
SCORER = TextScorer()


def evaluated(texts, documents, references=None):
    references = references or [[target] for target in TARGETS]
    rows = Texts(SOURCES, TARGETS, references, None, documents=documents)
    return DocumentScores().evaluated(None, Outputs(rows, texts, 1.0), SCORER, "test", None, None)


def test_scores_are_those_of_joined_texts():
    texts = ["eins zwei drei vier fünf", "sechs sieben acht", "", *"xya", ""]
    figures, table = evaluated(texts, [0, 0, 0, 1, 1, 1, 1])
    joined = [" ".join(texts[:2]), " ".join(texts[3:6])]
    expected = SCORER.score(joined, [[" ".join(TARGETS[:2])], [" ".join(TARGETS[3:6])]])
    assert [figures[f"d-{one.name}"]["value"] for one in expected] == [
        pytest.approx(one.value) for one in expected
    ]
    assert figures["documents"] == 2
    # joined, the word that stands in the wrong line is right
    assert figures["d-BLEU"]["value"] > SCORER.score(texts, [[one] for one in TARGETS])[0].value
    assert [(one["position"], one["rows"]) for one in figures["by_position"]] == [
        ("1", 2), ("2", 2), ("3-4", 1),
    ]  # fmt: skip
    assert table["documents"] == "2"


def test_intervals_are_over_documents():
    texts = ["eins zwei drei vier", "x", "", *"xyz", ""]
    alone = evaluated(texts, [*range(7)])[0]
    assert alone["BLEU"]["interval"] == list(
        SCORER.sentences(texts, [[one] for one in TARGETS])[0].interval()
    )
    assert "interval" not in evaluated(texts, [0] * 7)[0]["d-BLEU"]


def test_rows_with_several_references_are_joined_by_number():
    references = [[target, "nichts"] for target in TARGETS]
    references[0] = [*references[0], "mehr"]
    figures, _ = evaluated(["nichts", "nichts", "", *"xyz", ""], [0, 0, 0, 1, 1, 1, 1], references)
    assert figures["d-chrF"]["value"] > 50


def test_rows_without_documents_have_no_such_scores():
    assert evaluated(TARGETS, None) == ({}, {})


def test_evaluate_scores_documents_of_lines(capfd, trained, tmp_path):
    for name, line in (("en", "a dog"), ("de", "der Hund")):
        (tmp_path / f"test.{name}").write_text(f"{line}\n{line}\n\n{line}\n")
    data = ["data=parallel_text", f"data.root={tmp_path}", "data.source_suffix=en"]
    words = (f"bundle={trained}/model", *data, "data.target_suffix=de", f"output={tmp_path}/o")
    ended = run(capfd, "evaluate", *words, "data.documents=lines")
    assert ended.code == 0, ended.err
    assert "d-BLEU" in ended.out
    scores = json.loads((tmp_path / "o" / "scores.json").read_text())
    assert scores["document_scores"]["documents"] == 2
    assert "d-BLEU" not in run(capfd, "evaluate", *words).out
