"""What a bundle makes of a split: its figures, and the files of an evaluation."""

from dataclasses import replace

from seqattn.bundle.outputs import Outputs
from seqattn.data.base import Texts
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.text import TextScorer


def lines(file):
    return file.read_text(encoding="utf-8").splitlines()


def test_texts_are_counted_with_their_ends_and_written_one_a_line(tmp_path):
    made = Outputs(Texts(["x", "y"], [], [], None), ["a\nb", "c"], 2.0, 9)
    assert made.rates == {"sentences": 1.0, "tokens": 4.5}
    made.write(tmp_path)
    assert len(lines(tmp_path / "hypotheses.txt")) == 2
    assert not (tmp_path / "predictions.json").exists()


def test_scores_of_rows_with_groups_have_intervals_over_groups():
    rows = Texts([*"abcdef"], [], [["x"], ["y"]] * 3, None)
    texts = ["x", "y", "x", "y", "z", "z"]
    alone = Outputs(rows, texts, 1.0).scores(RougeScorer())
    grouped = Outputs(replace(rows, groups=[*"aabbcc"]), texts, 1.0).scores(RougeScorer())
    assert [one.value for one in grouped] == [one.value for one in alone]
    assert grouped[0].interval == (0, 100)
    assert alone[0].interval[0] > 0
    _, chrf = Outputs(replace(rows, groups=[*"aabbcc"]), texts, 1.0).scores(TextScorer())
    assert chrf.interval == (0, 100)


def test_parts_of_rows_keep_their_groups():
    rows = Texts([*"abc"], [], [["x"]] * 3, None, groups=[*"ppq"])
    assert rows.at([0, 2]).groups == ["p", "q"]
