"""What a bundle makes of a split: its figures, and the files of an evaluation."""

from seqattn.bundle.outputs import Outputs
from seqattn.data.base import Texts


def lines(file):
    return file.read_text(encoding="utf-8").splitlines()


def test_texts_are_counted_with_their_ends_and_written_one_a_line(tmp_path):
    made = Outputs(Texts(["x", "y"], [], [], None), ["a\nb", "c"], 2.0, 9)
    assert made.rates == {"sentences": 1.0, "tokens": 4.5}
    made.write(tmp_path)
    assert len(lines(tmp_path / "hypotheses.txt")) == 2
    assert not (tmp_path / "predictions.json").exists()
