"""Real ranks, as torchrun, SLURM and the command itself start them."""

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

import seqattn
from seqattn.cli.main import run_subcommand
from tests.cli.small import checkpoint, succeed, train_arguments

HOME = Path(seqattn.__file__).parents[1]
SLURM = {
    "SLURM_JOB_ID": "1234", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NNODES": "1",
    "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
}  # fmt: skip
PLAIN = ("task.validation.every=0", "task.final=null", "logger=[]")


def start(folder, *words, command=("train.py",), **variables):
    """A process of its own, in a folder where its run goes unless it is told otherwise."""
    own = {"PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", **variables}
    program = [sys.executable, *command[:-1], str(HOME / command[-1])]
    return subprocess.Popen(
        [*program, *words], cwd=folder, env={**os.environ, **own}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(*processes):
    """Exit codes, and what each wrote on standard error."""
    told = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], told


def tasks(folder, *words):
    """Two tasks of SLURM; the second is there first."""
    port = str(20000 + os.getpid() % 20000)
    started = []
    for rank in ("1", "0"):
        variables = {**SLURM, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "MASTER_PORT": port}
        started.insert(0, start(folder, *words, **variables))
    return started


def weights(home):
    return load_file(home / "model" / "model.safetensors")


def wait_for(found, seconds=200):
    ends = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.exhaustive
def test_two_tasks_of_slurm_make_one_run_of_a_name_that_the_first_chose(corpus, tmp_path):
    codes, told = ended(*tasks(tmp_path, *train_arguments(corpus, *PLAIN, steps=2)))
    assert codes == [0, 0], told
    [home] = (tmp_path / "runs" / "translation").iterdir()
    assert len(weights(home)) > 5


@pytest.mark.exhaustive
def test_tasks_of_slurm_that_are_refused_end_within_seconds_and_one_says_why(corpus, tmp_path):
    words = train_arguments(corpus, *PLAIN, f"run_dir={tmp_path}", "data.root=nowhere")
    began = time.monotonic()
    codes, told = ended(*tasks(tmp_path, *words))
    assert codes == [2, 2]
    assert sum(text.count("error: ") for text in told) == 1
    assert time.monotonic() - began < 60  # most of it to import what they need


@pytest.mark.exhaustive
def test_torchrun_starts_ranks_that_go_on_with_a_run(corpus, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")
    for steps, said in ((2, "weights"), (4, "resuming training"), (4, "finished after 4 steps")):
        words = train_arguments(corpus, *PLAIN, f"run_dir={tmp_path}/run", steps=steps)
        [code], [told] = ended(start(tmp_path, *words, command=launcher))
        assert code == 0, told
        assert said in told or steps == 2
        assert told.count("finished after") == (said == "finished after 4 steps")


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["rank", "launcher"])
def test_a_process_that_is_killed_costs_nothing_but_time(corpus, tmp_path, victim):
    """A rank is started again; where the launcher is gone, its ranks end too."""
    words = (*PLAIN, "trainer.devices=2", "model.dropout=0", "checkpoint.average=last")
    runs = [tmp_path / "whole", tmp_path / "killed"]
    arguments = [
        train_arguments(corpus, *words, f"run_dir={home}", steps=40, every=2) for home in runs
    ]
    assert ended(start(tmp_path, *arguments[0]))[0] == [0]
    process = start(tmp_path, *arguments[1])
    wait_for(lambda: list((runs[1] / "checkpoints").glob("*.ckpt")))
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = [int(one) for one in found if b"seqattn.training.launched" in command_of(one)]
    assert len(ranks) == 2
    os.kill(ranks[1] if victim == "rank" else process.pid, signal.SIGKILL)
    [code], [told] = ended(process)
    if victim == "rank":
        assert code == 0, told
        assert "rank 1 died (SIGKILL); restarting all ranks from the last checkpoint" in told
    else:
        wait_for(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks), seconds=5)
        [code], [told] = ended(start(tmp_path, *arguments[1]))
        assert code == 0, told
    assert "resuming training in killed" in told
    for name, weight in weights(runs[0]).items():
        assert torch.equal(weight, weights(runs[1])[name]), name


def command_of(process):
    return Path(f"/proc/{process}/cmdline").read_bytes()


def marked(mark):
    """Processes that were started with a mark in their environment, and their descendants."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # of another user, or gone
            if mark.encode() in (folder / "environ").read_bytes():
                yield int(folder.name)


def imported_torch(process):
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


def is_held_by(process, run):
    """Whether the note in a run's lock names a process."""
    lock = run / ".lock"
    return lock.is_file() and lock.read_text().startswith(f"{process}\n")


PHASES = {
    "imports": lambda run, ranks: True,
    "before the lock": lambda run, ranks: all(map(imported_torch, ranks)),
    "preparing": lambda run, ranks: any(is_held_by(rank, run) for rank in ranks),
    "training": lambda run, ranks: any(run.glob("checkpoints/step-*.ckpt")),
    "saving": lambda run, ranks: any(run.glob("checkpoints/.*.ckpt.*")),
}
"""What shows how far a training on two ranks has come."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "phases",
    [("imports", "training"), pytest.param(tuple(PHASES), marks=pytest.mark.exhaustive)],
    ids=["some", "all"],
)
def test_no_rank_outlives_a_launcher_that_is_killed_in_any_phase(
    capfd, corpus, tmp_path, monkeypatch, phases
):
    run, mark = tmp_path / "run", secrets.token_hex(8)
    where = ("trainer.devices=2", f"run_dir={run}")
    words = train_arguments(corpus, *PLAIN, *where, steps=40, every=1)
    monkeypatch.setenv("SEQATTN_TEST", mark)
    for reached in map(PHASES.get, phases):
        for file in run.glob("checkpoints/.*"):  # of a save that was killed
            file.unlink()
        launcher = fork_training(words)
        wait_for(lambda: len(ranks := [*marked(mark)]) == 2 and reached(run, ranks))  # noqa: B023
        os.kill(launcher, signal.SIGKILL)
        os.waitpid(launcher, 0)
        wait_for(lambda: not any(marked(mark)), seconds=60)
        if run.exists():
            FileLock(run / ".lock").acquire(timeout=60).lock.release()
    succeed(capfd, "train", *words)
    assert checkpoint(run)["global_step"] == 40


def fork_training(words):
    """Starts a launcher whose imports are done."""
    child = os.fork()
    if child == 0:
        try:
            run_subcommand("train", words)
        finally:
            os._exit(1)
    return child
