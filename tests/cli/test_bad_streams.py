"""Streams that are closed or hold no text, and disks that hold no more, end in one line."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fork import run_forked


@pytest.mark.parametrize(
    ("subcommand", "drop", "streams", "text"),
    [
        ("generate", "input", {"closed": (0,)}, "standard input is closed; set input=FILE"),
        ("generate", "output", {"closed": (1,)}, "standard output is closed; set output=FILE"),
        ("generate", "input", {"stdin": b"\xff\n"}, "standard input is not valid UTF-8: line 1"),
        ("generate", "input", {"stdin": b"x" * 600_000}, "standard input: line 1 is longer"),
        ("answer", "input", {"stdin": b"{\n"}, "standard input line 1 is not valid JSON"),
        ("answer", "input", {"stdin": b"[" * 100_000}, "standard input line 1 is not valid JSON"),
        ("generate", "", {"largest": 3}, "cannot write "),
        ("evaluate", "", {"largest": 3}, "cannot write "),
        ("convert", "", {"largest": 100}, "cannot write "),
        ("analyze", "", {"largest": 100}, "cannot write "),
        ("prepare", "", {"largest": 100}, "cannot write "),
    ],
)
def test_a_stream_or_a_disk_that_fails_is_said_in_one_line(places, subcommand, drop, streams, text):
    subcommand, given = places.usual(subcommand)
    words = [word for word in given if not drop or word.partition("=")[0] != drop]
    ended = run_forked(subcommand, words, places.folder, **streams)
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith(f"error: {text}"), ended.err
    assert not [path for path in places.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_standard_output_is_utf8_whatever_the_locale(places, encoding):
    subcommand, words = places.usual("analyze")
    ended = run_forked(
        subcommand, [*words, "text=a dog · süß │ ▁"], places.folder, encoding=encoding
    )
    assert ended.code == 0, ended
    assert ended.out.startswith("source:    a dog · süß │ ▁\n")


def test_a_table_in_another_encoding_is_printed_once_the_run_is_on_the_disk(places, monkeypatch):
    subcommand, words = places.usual("train")
    ended = run_forked(subcommand, words, places.folder, encoding="ascii")
    assert ended.code == 0, ended
    assert "·" in ended.out

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqattn.training.finish.print_table", fails)
    ended = run_forked(subcommand, [*words, "run_dir=other"], places.folder)
    assert ended.code == 2, ended
    assert ended.err.splitlines()[-1] == "error: No space left on device"
    assert (places.folder / "other" / "result.yaml").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("subcommand", ["generate", "export"])
def test_a_signal_while_files_are_written_leaves_none(
    places, subcommand, number, code, monkeypatch
):
    monkeypatch.setattr("seqattn.storage.os.fsync", lambda _: os.kill(os.getpid(), number))
    subcommand, words = places.usual(subcommand)
    ended = run_forked(subcommand, words, places.folder)
    assert (ended.code, ended.err.splitlines()[-1]) == (code, "stopped")
    assert not [*places.folder.iterdir()]


def test_a_training_whose_terminal_is_closed_saves_its_last_step(places):
    subcommand, words = places.usual("train")
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
        os.chdir(places.folder)
        os.execv(
            sys.executable,
            [sys.executable, "-m", "seqattn", subcommand, *words, "trainer.max_steps=100000",
             "trainer.val_check_interval=5000"],
        )  # fmt: skip
    printed = b""
    while b"about" not in printed:
        printed += os.read(terminal, 1000)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    [saved] = (places.folder / "run" / "checkpoints").iterdir()
    step = int(saved.name.split("-")[1])
    assert (places.folder / "run" / "train.log").read_text().endswith(f"SIGTERM at step {step:,}\n")


def test_a_full_disk_is_said_once(places):
    subcommand, words = places.usual("generate")
    words = [word for word in words if not word.startswith("output=")]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "seqattn", subcommand, *words], cwd=places.folder, stdout=full,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (2, "error: No space left on device\n")
