"""Commands run in a process of their own that is forked from this one, its imports done."""

import contextlib
import os
import resource
import signal
import sys
import traceback
from typing import NamedTuple, TextIO

from seqattn.cli.main import run_subcommand
from tests.cli.small import Ended

SECONDS = 60
"""After which a command counts as one that hangs."""


class Running(NamedTuple):
    """A command that runs: its process, where to type, and what it prints as it comes."""

    process: int
    typed: TextIO
    out: TextIO
    err: TextIO

    def ended(self):
        """Waits for its end; what was read of its output before is left out."""
        with contextlib.suppress(BrokenPipeError):  # of a command that reads no more
            self.typed.close()
        told = []
        for stream in (self.out, self.err):
            told.append("" if stream.closed else stream.read())
            stream.close()
        _, status = os.waitpid(self.process, 0)
        return Ended(os.waitstatus_to_exitcode(status), *told)


def run_forked(subcommand, words, folder, stdin=b"", closed=(), largest=None, encoding="utf-8"):
    """Runs a subcommand in `folder`.

    Args:
        subcommand: which.
        words: its arguments.
        folder: where it runs.
        stdin: what is typed.
        closed: numbers of the streams that are closed.
        largest: bytes that a file may grow to; None for any.
        encoding: of its streams.
    """
    running = start_forked(subcommand, words, folder, closed, largest, encoding)
    with contextlib.suppress(BrokenPipeError):
        running.typed.buffer.write(stdin)
    return running.ended()


def start_forked(subcommand, words, folder, closed=(), largest=None, encoding="utf-8"):
    """Starts a subcommand, to which more can be typed. Arguments are those of `run_forked`."""
    (typed, to_typed), (out, to_out), (err, to_err) = os.pipe(), os.pipe(), os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for ours in (to_typed, out, err):
                os.close(ours)
            code = _child(
                subcommand, words, folder, (typed, to_out, to_err), closed, largest, encoding
            )
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)
    for theirs in (typed, to_out, to_err):
        os.close(theirs)
    streams = (os.fdopen(one, encoding="utf-8", errors="replace") for one in (out, err))
    return Running(child, os.fdopen(to_typed, "w", encoding="utf-8"), *streams)


def _child(subcommand, words, folder, streams, closed, largest, encoding):
    signal.alarm(SECONDS)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    os.chdir(folder)
    os.dup2(streams[0], 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number > 0:
            os.dup2(streams[number], number)
        errors = "backslashreplace" if number == 2 else "strict"
        mode = "w" if number else "r"
        own = None
        if number in closed:
            os.close(number)
        else:
            own = os.fdopen(number, mode, encoding=encoding, errors=errors, closefd=False)
        setattr(sys, name, own)
    if largest is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    return run_subcommand(subcommand, words)


def _flush():
    for own in (sys.stdout, sys.stderr):
        if own is not None and not own.closed:
            with contextlib.suppress(OSError):  # of a pipe that nobody reads
                own.flush()
