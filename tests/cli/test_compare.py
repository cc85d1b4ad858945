"""`compare`: evaluations side by side."""

import json
from pathlib import Path

import pytest

from seqattn.runs.compare import distinct_names
from tests.cli.small import refusal, run


def write_evaluation(directory, bleu, signature="s", bins=((2, 7), (5, 9))):
    directory.mkdir(parents=True)
    content = {
        "scores": {"BLEU": {"value": bleu, "signature": signature}},
        "by_length": [
            {"words": f"1-{n}", "sentences": count, "scores": {"BLEU": {"value": bleu + n}}}
            for n, count in bins
        ],
    }
    (directory / "scores.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


@pytest.fixture
def two(tmp_path):
    first = write_evaluation(tmp_path / "mha" / "evaluation" / "test", 31.25)
    second = write_evaluation(tmp_path / "gqa" / "evaluation" / "test", 30.5)
    return f"evaluations=[{first},{second}]"


def test_scores_stand_beside_the_part_of_the_path_that_differs(two, capfd):
    ended = run(capfd, "compare", two)
    assert ended.code == 0, ended.err
    rows = [line.replace("│", " ").split() for line in ended.out.splitlines()]
    assert ["mha", "31.25"] in rows
    assert ["gqa", "30.50"] in rows


def test_a_picture_is_drawn_by_source_length(two, capfd, tmp_path):
    ended = run(capfd, "compare", two, f"output={tmp_path / 'curves.png'}")
    assert ended.code == 0, ended.err
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_scores_that_were_computed_otherwise_are_told(tmp_path, capfd):
    first = write_evaluation(tmp_path / "a", 1.0, "tok:13a")
    second = write_evaluation(tmp_path / "b", 2.0, "tok:none")
    ended = run(capfd, "compare", f"evaluations=[{first},{second}]")
    assert "BLEU was not computed alike: tok:13a and tok:none" in ended.out


def test_a_directory_without_an_evaluation_is_refused(tmp_path, capfd):
    said = refusal(capfd, "compare", f"evaluations=[{tmp_path}]")
    assert said.startswith(f"{tmp_path} is no evaluation: ")
    assert said.endswith("; run evaluate first")


def test_a_damaged_evaluation_is_refused(tmp_path, capfd):
    (tmp_path / "scores.json").write_text('{"scores": [1', encoding="utf-8")
    assert refusal(capfd, "compare", f"evaluations=[{tmp_path}]").endswith("; evaluate again")


def test_a_picture_of_other_bins_is_refused(tmp_path, capfd):
    first = write_evaluation(tmp_path / "a", 1.0)
    second = write_evaluation(tmp_path / "b", 2.0, bins=((3, 7), (5, 9)))
    said = refusal(
        capfd, "compare", f"evaluations=[{first},{second}]", f"output={tmp_path / 'c.png'}"
    )
    assert said.startswith("a picture needs evaluations of one split with the same lengths")


def test_names_are_what_differs_in_the_paths():
    paths = [Path("/r/mha/s1/evaluation/test"), Path("/r/gqa/s2/evaluation/test")]
    assert distinct_names(paths) == ["mha/s1", "gqa/s2"]
    assert distinct_names([Path("a/evaluation")]) == ["a/evaluation"]
    assert distinct_names([Path("x/a"), Path("a")]) == ["x", "a"]
