"""Several processes that train one model."""

import hashlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from seqattn.cli.main import run_subcommand
from seqattn.errors import Stopped, UserError
from seqattn.training.launch import run_rank
from seqattn.training.rank_messages import RankMessages
from seqattn.training.train import Training
from seqattn.training.trainer_options import TrainerOptions
from tests.cli.fork import start_forked
from tests.cli.small import (
    checkpoint,
    composed,
    refusal,
    run,
    succeed,
    train_arguments,
)


@pytest.mark.slow
def test_two_ranks_that_the_command_starts_make_one_run(capfd, corpus, tmp_path):
    words = train_arguments(corpus, "trainer.devices=2", f"run_dir={tmp_path}/run", steps=2)
    out = succeed(capfd, "train", *words)
    assert out.count("saved weights") == 1
    assert checkpoint(tmp_path / "run")["global_step"] == 2
    assert not list((tmp_path / "run").glob(".*"))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.exhaustive
def test_two_ranks_in_shards_write_the_bundle_of_two_that_hold_all(capfd, corpus, tmp_path):
    words = ("trainer.accelerator=cpu", "trainer.devices=2", "checkpoint.count=2")
    words += ("model.dropout=0", "attention.dropout=0", "optimizer.eps=0.001")
    bundles = []
    for name in ("ddp", "fsdp2"):
        run = tmp_path / name
        given = (f"trainer={name}", *words, f"run_dir={run}")
        succeed(capfd, "train", *train_arguments(corpus, *given))
        bundles.append(load_file(run / "model" / "model.safetensors"))
    whole, sharded = bundles
    assert whole.keys() == sharded.keys()
    for part, weight in whole.items():
        torch.testing.assert_close(sharded[part], weight, atol=1e-6, rtol=0)


QUICK = """#!{python} -S
import os, sys
sys.stderr.close()
run, room = sys.argv[-2:]
assert run.endswith("/run"), run
if os.environ["RANK"] == "0":
    open(room + "/ended.yaml", "w").write("{ended}")
sys.exit(2)
"""
"""A rank that ends at once, where a real one takes seconds to import what it needs."""


@pytest.fixture
def quick(tmp_path, monkeypatch):
    def set_up(text):
        (tmp_path / "python").write_text(text)
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    return set_up


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_refusal_in_a_rank_is_one_line(capfd, corpus, tmp_path, quick, real):
    if not real:
        quick(QUICK.format(python=sys.executable, ended="the data is gone"))
    words = ("trainer.devices=2", f"run_dir={tmp_path}/run", "loader.max_length=2")
    ended = run(capfd, "train", *train_arguments(corpus, *words))
    assert ended.code == 2
    text = "the train split has no usable pairs" if real else "the data is gone"
    assert ended.err.splitlines()[-1].startswith(f"error: {text}")
    assert not (tmp_path / "run").exists()


def test_ranks_that_a_signal_stopped_end_the_command_with_their_code(
    capfd, corpus, tmp_path, quick
):
    quick(QUICK.format(python=sys.executable, ended="[15, 7]").replace("exit(2)", "exit(143)"))
    words = train_arguments(corpus, "trainer.devices=2", f"run_dir={tmp_path}/run")
    ended = run(capfd, "train", *words)
    assert ended.code == 143
    assert ended.err == "stopped by SIGTERM at step 7; run the same command to resume\n"


def test_ranks_leave_nothing_behind_them(capfd, corpus, tmp_path, quick, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    quick(QUICK.format(python=sys.executable, ended="the data is gone"))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    words = train_arguments(corpus, "trainer.devices=2", f"run_dir={tmp_path}/run")
    assert run(capfd, "train", *words).code == 2
    assert not list((tmp_path / "temporary").iterdir())
    assert dict(os.environ) == environment
    assert signal.getsignal(signal.SIGINT) == handler


STOPPED = """#!{python} -S
import os, signal, sys, time
room, rank = sys.argv[-1], os.environ["RANK"]
def stop(number, frame):
    if rank == "0":
        open(room + "/ended.yaml", "w").write(f"[{{number}}, 7]")
    os._exit(128 + number)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
open("{up}/up" + rank, "w")
time.sleep(60)
"""
"""A rank that a signal stops."""


@pytest.mark.parametrize(("sent", "name"), [(15, "SIGTERM"), (2, "SIGINT")])
def test_a_signal_reaches_the_ranks(corpus, tmp_path, quick, sent, name):
    quick(STOPPED.format(python=sys.executable, up=tmp_path))
    words = train_arguments(corpus, "trainer.devices=2", f"run_dir={tmp_path}/run")
    command = start_forked("train", words, tmp_path)
    while not all((tmp_path / f"up{rank}").exists() for rank in (0, 1)):
        time.sleep(0.05)
    os.kill(command.process, sent)
    line = f"stopped by {name} at step 7; run the same command to resume\n"
    assert command.ended() == (128 + sent, "", line)


def test_ranks_start_again_where_one_has_died_but_not_without_end(capfd, corpus, tmp_path, quick):
    quick(f"#!{sys.executable} -S\nimport os\nos.kill(os.getpid(), 9)\n")
    words = ("trainer.devices=2", "trainer.restarts=1", f"run_dir={tmp_path}/run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").touch()
    ended = run(capfd, "train", *train_arguments(corpus, *words))
    assert ended.code == 2
    again, last = ended.err.splitlines()
    assert re.match(r"rank \d died \(SIGKILL\); restarting all ranks .* 1 left\)", again)
    assert re.fullmatch(r"error: rank \d died \(SIGKILL; message above\)", last)
    logged = (tmp_path / "run" / "train.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in logged] == [again, last]


def test_a_rank_leaves_the_reason_of_its_end(corpus, tmp_path, monkeypatch):
    words = train_arguments(corpus, f"run_dir={tmp_path}/run", "data.root=nowhere")
    settings = composed("train", *words)[0]
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    assert run_rank(tmp_path) == 2
    assert (tmp_path / "ended.yaml").read_text().startswith("data.root=")

    def stopped(run):
        raise Stopped(signal.SIGINT, 3)

    monkeypatch.setattr(Training, "run", stopped)
    assert run_rank(tmp_path) == 130
    assert yaml.safe_load((tmp_path / "ended.yaml").read_text()) == [2, 3]


@pytest.mark.parametrize("lost", [True, False])
def test_a_rank_that_lost_another_says_so_in_one_line(corpus, tmp_path, monkeypatch, capfd, lost):
    settings = composed("train", *train_arguments(corpus, f"run_dir={tmp_path}/run"))[0]
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    text = f"[/gloo/transport/tcp/pair.cc:537] {'Connection reset by peer' if lost else 'sizes'}."

    def failed(run):
        raise RuntimeError(text)

    monkeypatch.setattr(Training, "run", failed)
    if lost:
        assert run_rank(tmp_path) == 1
        assert capfd.readouterr().err == "rank 0 lost its connection to another rank\n"
    else:
        with pytest.raises(RuntimeError, match="sizes"):
            run_rank(tmp_path)


def test_a_rank_that_fails_lets_the_others_know(corpus, tmp_path, monkeypatch):
    told = []

    def failed(run):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Training, "run", failed)
    monkeypatch.setattr(RankMessages, "fail", lambda messages, text: told.append(text))
    with pytest.raises(ZeroDivisionError):
        run_subcommand("train", train_arguments(corpus, f"run_dir={tmp_path}/run"))
    assert told == ["another rank failed: ZeroDivisionError('a bug')"]


def test_a_training_that_is_stopped_says_how_to_go_on(capfd, corpus, tmp_path, monkeypatch):
    def stopped(run):
        raise Stopped(signal.SIGTERM, 3)

    monkeypatch.setattr(Training, "run", stopped)
    monkeypatch.chdir(tmp_path)
    ended = run(capfd, "train", *train_arguments(corpus, "run_dir=run"))
    assert ended == (143, "", "stopped by SIGTERM at step 3; run the same command to resume\n")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, "run_dir=run", "seed=1,2"))
    assert ended == (
        143, "", "job 0 (1 of 2): seed=1\n"
        "stopped by SIGTERM at step 3; run the same command to resume\n",
    )  # fmt: skip
    ended = run(capfd, "train", *train_arguments(corpus))
    assert re.search(r" command with resume=runs/translation/[\d_-]+ added to", ended.err)
    ended = run(capfd, "train", "-m", *train_arguments(corpus, "seed=1,2"))
    assert re.search(r" command with run_dir=runs/translation/[\d_-]+ added to", ended.err)


@pytest.mark.parametrize("gone", [False, True])
def test_a_job_of_another_process_stops_with_the_one_that_started_it(tmp_path, gone):
    program = f"""
import os, pathlib, signal, sys, time
from seqattn.processes import end_with
def stopped(*_):
    pathlib.Path({str(tmp_path / "stopped")!r}).touch()
signal.signal(signal.SIGTERM, stopped)
parent = os.getpid()
if os.fork() == 0:
    while {gone} and os.getppid() == parent:
        time.sleep(0.01)
    end_with(parent, seconds=0.1)
    time.sleep(60)
os.kill(parent, signal.SIGKILL)
"""
    ends_by_itself(program)
    assert (tmp_path / "stopped").is_file()


def test_a_rank_ends_whose_launcher_was_gone_before_it_began(tmp_path):
    os.mkfifo(tmp_path / "settings.yaml")  # for which a rank waits for ever
    program = f"""
import os, sys
launcher = os.getpid()
if os.fork() == 0:
    while os.getppid() == launcher:
        pass
    rank = ["-m", "seqattn.training.launched", str(launcher), {str(tmp_path)!r}]
    os.execv(sys.executable, [sys.executable, *rank])
"""
    ends_by_itself(program)


def ends_by_itself(program):
    """Waits until all processes of a program have ended, long before any would by itself."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    with subprocess.Popen([sys.executable, "-c", program], pass_fds=[writing]):
        os.close(writing)
    assert select.select([reading], [], [], 40)[0]  # at the end of the last that could write
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    ("started", "asked", "devices", "nodes"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, {}, 2, 2),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {"devices": [1, 2]}, [1, 2], 1),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6", "SLURM_NNODES": "3"}, {"num_nodes": 3}, 2, 3),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {"devices": 4}, None, None),
    ],
)
def test_a_launcher_of_others_says_how_many_devices_train(
    monkeypatch, started, asked, devices, nodes
):
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    options = TrainerOptions(accelerator="cpu", **asked)
    if devices is None:
        with pytest.raises(UserError, match="2 ranks were started, 2 per machine, so "):
            options.as_started()
        return
    assert options.as_started() == {"devices": devices, "num_nodes": nodes}


def test_ranks_without_an_address_to_meet_at_are_refused(capfd, corpus, monkeypatch):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert refusal(capfd, "train", *train_arguments(corpus)) == (
        "RANK and WORLD_SIZE also need MASTER_ADDR and MASTER_PORT; set them, or start the ranks "
        "with torchrun"
    )


def test_a_poisoned_checkpoint_is_not_unpickled(capfd, corpus, tmp_path):
    class Poison:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    run = tmp_path / "run"
    succeed(capfd, "train", *train_arguments(corpus, f"run_dir={run}", steps=2))
    [last] = (run / "checkpoints").glob("step-*.ckpt")
    torch.save({**checkpoint(run), "poison": Poison()}, last)
    digest = hashlib.sha256(last.read_bytes()).hexdigest()[:8]
    last.rename(last.with_name(f"step-000002-{digest}.ckpt"))
    text = refusal(capfd, "train", f"resume={run}", "trainer.max_steps=4")
    assert "contains more than weights and numbers; start a new run" in text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("model.dim=32", "model.dim=16, but this command has model.dim=32"),
        ("attention=gqa", "attention=mha, but this command has attention=gqa"),
        ("attention=linear", "attention=mha, but this command has attention=linear"),
        (
            "tokenizer.vocab_size=50",
            "tokenizer.vocab_size=60, but this command has tokenizer.vocab_size=50",
        ),
    ],
)
def test_another_model_or_vocabulary_cannot_go_on(capfd, corpus, tmp_path, word, text):
    run = corpus.parent / "first"
    if not run.exists():
        succeed(capfd, "train", *train_arguments(corpus, f"run_dir={run}", steps=2))
    refused = refusal(capfd, "train", f"resume={run}", word)
    assert refused == f"resume={run} cannot change the model or vocabulary: the run has {text}"


def test_a_run_of_another_version_cannot_go_on(capfd, corpus, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000002-12345678.ckpt").write_bytes(b"")
    (tmp_path / "overrides.yaml").write_text("[]\n")
    (tmp_path / "config.yaml").write_text("model: {}\n")
    assert "was written by another version" in refusal(capfd, "train", f"resume={tmp_path}")
