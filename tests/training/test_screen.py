"""The bar of a long work: on a terminal, beside the output."""

import io
import sys

from seqattn import screen
from seqattn.screen import log_to, progress, say


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_is_shown_on_a_terminal_and_leaves_the_output_alone(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress("generating", "texts") as advance:
        advance(3, 7)
        print("output")
    assert "3/7" in sys.stderr.getvalue()
    assert "output" not in sys.stderr.getvalue()
    assert capsys.readouterr().out == "output\n"


def test_a_log_holds_what_is_said_up_to_a_size(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(screen, "_LARGEST", 100)
    for number in range(6):  # opened again each time, as by a resumed run
        log_to(tmp_path / "train.log")
        say(f"line {number}")
    log_to(None)
    say("elsewhere")
    assert capsys.readouterr().err.splitlines()[-2:] == ["line 5", "elsewhere"]
    kept = [(tmp_path / name).read_text() for name in ("train.log.1", "train.log")]
    assert all(0 < len(text) <= 100 for text in kept)
    assert [line.split(" ", 2)[2] for line in "".join(kept).splitlines()][-2:] == [
        "line 4",
        "line 5",
    ]
