"""The bar of a long work: on a terminal, beside the output."""

import io
import sys

from seqattn.runs.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_shown_on_a_terminal_and_leaves_the_output_alone(monkeypatch, capsys):
    with progress_bar("generating") as progress:
        assert progress is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("generating") as progress:
        progress(3, 7)
        print("output")
    assert "3/7" in sys.stderr.getvalue()
    assert "output" not in sys.stderr.getvalue()
    assert capsys.readouterr().out == "output\n"
