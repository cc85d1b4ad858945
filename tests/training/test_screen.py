"""The bar of a long work: on a terminal, beside the output."""

import io
import sys

from seqattn.screen import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_shown_on_a_terminal_and_leaves_the_output_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress("generating", "texts") as tell:
        tell(3, 7)
        print("output")
    assert "3/7" in sys.stderr.getvalue()
    assert "output" not in sys.stderr.getvalue()
    assert capsys.readouterr().out == "output\n"
