"""Kills trainings at random instants, reruns their commands, and compares with uninterrupted ones.

    python -m tests.kills [--count 100] [--seed 1]

Each case is a kind of model on one or two ranks, in two precisions, with and without data workers;
it checkpoints at every step, so that many kills fall into a save. Prints a line a case.
"""

import argparse
import contextlib
import csv
import itertools
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch

from seqattn.cli.main import run_subcommand
from tests.absent import has_extra
from tests.cli.small import (
    checkpoint,
    place,
    train_arguments,
    write_corpus,
    write_documents,
    write_questions,
)

STEPS = 12
KINDS = {
    "transformer": (write_corpus, ()),
    "rnn": (write_documents, ("task=summarization", "model=rnn", "data=aeslc", "model.copy=true")),
}
if has_extra("answers"):
    spans = ("task=qa", "model=span_rnn", "data=squad", "loader.window=64")
    KINDS["spans"] = (write_questions, spans)
SMALL = (
    "model.dim=12", "model.dropout=0.3", "loader.max_tokens=200", "trainer=cpu",
    "trainer.max_epochs=-1", "optimizer.lr=0.01", "schedule=constant", "schedule.warmup_steps=1",
    "~watch",
)  # fmt: skip
ALWAYS = (
    f"trainer.max_steps={STEPS}", "trainer.val_check_interval=3", "checkpoint.every_steps=1",
    "checkpoint.count=2", "loader.step_batches=2", "trainer.log_every_n_steps=1",
)  # fmt: skip
TIMED = ("tokens_per_second", "waiting_share", "seconds_left", "peak_memory_mb")
"""Columns of metrics that no two runs have alike."""


def cases():
    """Every case, as its name and how it is trained."""
    for kind, workers, world, precision in itertools.product(
        KINDS, (0, 2), (1, 2), ("32", "bf16-mixed")
    ):
        yield f"{kind} workers={workers} ranks={world} {precision}", (
            kind, world, (f"loader.num_workers={workers}", f"trainer.precision={precision}"),
        )  # fmt: skip


def words_of(home, kind, *more):
    """The command of a case, but for its run directory."""
    write, own = KINDS[kind]
    root = home / kind
    if not root.exists():
        write(root)
    if kind == "transformer":
        words = train_arguments(root, *SMALL, *ALWAYS, *more)
    else:
        length = ("loader.max_length=64", "loader.max_source_length=64") if kind == "rnn" else ()
        where = (f"data.root={root}", f"cache_dir={home / 'cache'}")
        words = [*own, *where, *length, *SMALL, *ALWAYS, *more]
    return [*words, "loader.stride=32"] if kind == "spans" else words


def start(words, world, log):
    """Forks the ranks of a training, which print to a file, and gives their process numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [_fork(rank, world, port, words, log) for rank in range(world)]


def _fork(rank, world, port, words, log):
    child = os.fork()
    if child:
        return child
    code = 1
    with contextlib.suppress(BaseException):
        told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(told, 1)
        os.dup2(told, 2)
        torch.set_num_threads(1)
        if world > 1:
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
        code = run_subcommand("train", [*words, f"trainer.devices={world}"])
    os._exit(code)


def end(children):
    """Waits for the ranks; the exit code of each."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def kill(children, after, chosen):
    """Kills a training after so many seconds, one rank first; whether it was still at work."""
    until = time.monotonic() + after
    while time.monotonic() < until:
        time.sleep(0.005)
    alive = os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    for child in sorted(children, key=lambda child: child != children[chosen]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    end(children)
    return alive


def measurements(run_dir):
    """The logged rows of a run, without what the clock decides."""
    [file] = run_dir.glob("csv/**/metrics.csv")
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    return [{n: x for n, x in row.items() if not n.endswith(TIMED)} for row in rows]


def difference(one, other):
    """Where two runs differ, in words; None where they are equal to the bit."""
    mine, theirs = checkpoint(one), checkpoint(other)
    if place(mine) != place(theirs):
        return "the place"
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "kept"):
        if not _equal(mine[part], theirs[part]):
            return part
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (one, other)]
    if weights[0] != weights[1]:
        return "the bundle"
    return None if measurements(one) == measurements(other) else "the measurements"


def _equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def try_case(home, how, kills, chance):
    """Kills a training so many times; where it differs from the other, and how many there were."""
    kind, world, more = how
    words = words_of(home, kind, *more)
    whole, killed = (Path(tempfile.mkdtemp(dir=home)) / "run" for _ in range(2))
    began, log = time.monotonic(), killed.parent / "log"
    if any(end(start([*words, f"run_dir={whole}"], world, log))):
        return f"the uninterrupted run fails: {log.read_text()[-500:]}", 0
    takes, done = time.monotonic() - began, 0
    for _ in range(3 * kills):
        if done == kills:
            break
        children = start([*words, f"run_dir={killed}"], world, log)
        if kill(children, chance.uniform(0.1, 0.9) * takes, chance.randrange(world)):
            done += 1
            continue
        takes *= 0.6  # it has ended: the run that it was timed by was slower
        if not done:
            shutil.rmtree(killed)
    codes = end(start([*words, f"run_dir={killed}"], world, log))
    if any(codes):
        return f"the rerun ends with {codes}: {log.read_text()[-500:]}", done
    return difference(killed, whole), done


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    given = parser.parse_args()
    chosen = [case for case in cases() if given.only in case[0]]
    chance, total, unequal = random.Random(given.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, how) in enumerate(chosen):
            share = (number + 1) * given.count // len(chosen) - number * given.count // len(chosen)
            found, kills = try_case(Path(folder), how, share, chance)
            total, unequal = total + kills, unequal + (found is not None)
            print(f"{name:45} {kills} kills, {found or 'equal to the bit'}", flush=True)
    print(f"{total} kills in {len(chosen)} runs, {unequal} of them unequal")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
