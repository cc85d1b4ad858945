"""Commands run in a process of their own that is forked from this one, its imports done."""

import os
import resource
import signal
import sys
import traceback
from typing import NamedTuple

from seqattn.cli.main import run_verb

SECONDS = 60
"""After which a command counts as one that hangs."""


class Ended(NamedTuple):
    """How a command ended: its exit code, or minus the signal, and what it printed."""

    code: int
    out: str
    err: str


def run_forked(verb, words, folder, stdin=b"", closed=(), largest=None):
    """Runs a verb in `folder`.

    Args:
        verb: which.
        words: its arguments.
        folder: where it runs.
        stdin: what is typed.
        closed: numbers of the streams that are closed.
        largest: bytes that a file may grow to; None for any.
    """
    typed = folder.with_name(f"{folder.name}.stdin")
    typed.write_bytes(stdin)
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()  # which hold what these commands print
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _child(verb, words, folder, (typed, to_out, to_err), closed, largest)
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)
    os.close(to_out)
    os.close(to_err)
    told = []
    for pipe in (out, err):
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as stream:
            told.append(stream.read())
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), *told)


def _child(verb, words, folder, streams, closed, largest):
    signal.alarm(SECONDS)
    os.chdir(folder)
    os.dup2(os.open(streams[0], os.O_RDONLY), 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number > 0:
            os.dup2(streams[number], number)
        errors = "backslashreplace" if number == 2 else "strict"
        mode = "w" if number else "r"
        own = None
        if number in closed:
            os.close(number)
        else:
            own = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, own)
    if largest is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    return run_verb(verb, words)


def _flush():
    for own in (sys.stdout, sys.stderr):
        if own is not None and not own.closed:
            own.flush()
