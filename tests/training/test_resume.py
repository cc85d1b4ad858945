"""The same command goes on with a run that was stopped, and says so of one that is finished."""

import os
import shutil
import signal
import time

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqattn.cli.main import run_subcommand
from seqattn.errors import UserError
from seqattn.training.resume import phase_of
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from tests.cli.small import checked_training, logged, refusal, run, train, train_arguments

MEASURED = (
    "per_second",
    "waiting",
    "padding",
    "seconds_left",
    "peak_memory",
)  # figures of the machine, or of this process
LOGGED = ("logger=[csv,tensorboard]", "trainer.log_every_n_steps=1", "model.dropout=0.3")


class Killed(Exception):
    pass


def killed(arguments, step):
    """A training that ends at the beginning of a step, as one that is killed there."""
    begins = Seq2SeqTask.on_train_batch_start

    def begin(task, batch, batch_idx):
        if task.global_step == step:
            raise Killed
        begins(task, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Seq2SeqTask, "on_train_batch_start", begin)
        with pytest.raises(Killed):
            run_subcommand("train", arguments)


@pytest.fixture(scope="module")
def trained(corpus):
    """A run of six steps."""
    home = corpus.parent / "whole"
    train(words_of(corpus, home))
    return home


def words_of(corpus, home, *overrides, steps=6):
    return train_arguments(corpus, *LOGGED, f"run_dir={home}", *overrides, steps=steps)


def figures(home):
    """What a run logged that depends on no clock."""
    kept = [key for key in logged(home)[0] if not any(word in key for word in MEASURED)]
    return [{key: row[key] for key in kept} for row in logged(home)]


def steps_shown(home, tag):
    [version] = (home / "tensorboard").iterdir()
    return [event.step for event in EventAccumulator(str(version)).Reload().Scalars(tag)]


def test_the_same_command_goes_on_and_its_logs_are_those_of_the_uninterrupted_run(
    capfd, corpus, trained, tmp_path
):
    words = words_of(corpus, tmp_path)
    killed(words, step=5)
    time.sleep(1 - time.time() % 1)  # TensorBoard orders files by the second in their names
    assert len(figures(tmp_path)) > len([row for row in figures(tmp_path) if int(row["step"]) < 4])
    ended = run(capfd, "train", *words)
    assert ended.code == 0, ended.err
    assert f"resuming training in {tmp_path}" in ended.err.splitlines()
    weights = [load_file(home / "model" / "model.safetensors") for home in (tmp_path, trained)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert figures(tmp_path) == figures(trained)
    for tag in ("train/loss", "val/loss"):
        assert steps_shown(tmp_path, tag) == steps_shown(trained, tag)
    assert [folder.name for folder in (tmp_path / "csv").iterdir()] == ["version_0"]
    log = (tmp_path / "train.log").read_text()
    assert log.count(" parameters on 1 x CPU: ") == 2  # before and after the kill
    assert all(log.count(line) == 1 for line in ended.err.splitlines() if "step" in line)
    assert log.count("resuming training in ") == log.count(f"bundle: {tmp_path}/model") == 1


@pytest.mark.parametrize("step", [2, 3])  # in a step before a validation, and in another
def test_a_run_that_a_signal_stopped_goes_on(capfd, corpus, trained, tmp_path, step):
    begins = Seq2SeqTask.on_train_batch_start

    def begin(task, batch, batch_idx):
        if task.global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        begins(task, batch, batch_idx)

    words = words_of(corpus, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Seq2SeqTask, "on_train_batch_start", begin)
        ended = run(capfd, "train", *words)
    assert ended.code == 143
    line = f"stopped by SIGTERM at step {step + 1}; run the same command to resume"
    assert ended.err.splitlines()[-1] == line
    time.sleep(1.1)  # TensorBoard reads one process's files in order where their seconds differ
    assert run(capfd, "train", *words).code == 0
    assert figures(tmp_path) == figures(trained)
    assert steps_shown(tmp_path, "val/loss") == steps_shown(trained, "val/loss")


def test_a_signal_in_the_last_step_loses_no_validation(capfd, corpus, trained, tmp_path):
    begins = Seq2SeqTask.on_train_batch_start

    def begin(task, batch, batch_idx):
        if task.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        begins(task, batch, batch_idx)

    words = words_of(corpus, tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Seq2SeqTask, "on_train_batch_start", begin)
        ended = run(capfd, "train", *words)
    assert ended.code == 143
    assert ended.err.splitlines()[-1].startswith("stopped by SIGTERM at step 6; run the same")
    assert not (tmp_path / "model").exists()
    assert run(capfd, "train", *words).code == 0
    assert figures(tmp_path) == figures(trained)
    weights = [load_file(home / "model" / "model.safetensors") for home in (tmp_path, trained)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(
    capfd, corpus, trained, tmp_path
):
    killed(words_of(corpus, tmp_path, "seed=3"), step=1)
    ended = run(capfd, "train", *words_of(corpus, tmp_path))
    assert ended.code == 0
    assert "resuming" not in ended.err
    assert figures(tmp_path) == figures(trained)
    assert steps_shown(tmp_path, "train/loss") == steps_shown(trained, "train/loss")


def test_a_run_that_was_killed_at_its_end_logs_its_scores_once(capfd, corpus, trained, tmp_path):
    words = words_of(corpus, tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.yaml").unlink()
    time.sleep(1.1)  # as above
    assert run(capfd, "train", *words).code == 0
    assert figures(tmp_path) == figures(trained)
    assert steps_shown(tmp_path, "final/val/bleu") == steps_shown(trained, "final/val/bleu")


def test_a_finished_run_says_so_and_more_steps_go_on(capfd, corpus, trained, tmp_path):
    words = words_of(corpus, tmp_path, steps=4)
    train(words)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ended = run(capfd, "train", *words)
    assert ended == (0, "", (
        f"run_dir={tmp_path} finished after 4 steps; its bundle is {tmp_path}/model; to "
        f"continue, add resume={tmp_path} and a higher trainer.max_steps or trainer.max_epochs\n"
    ))  # fmt: skip
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    train(words_of(corpus, tmp_path))
    weights = [load_file(home / "model" / "model.safetensors") for home in (tmp_path, trained)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("optimizer.lr=0.5", "optimizer.lr=0.01"),
        ("seed=2", "seed=1"),
        ("model.dropout=0.1", "model.dropout=0.3"),
        ("attention=gqa", "attention=mha"),
        ("attention.num_kv_heads=2", "attention.num_kv_heads=4"),
        ("attention@encoder_attention=gqa", "attention@encoder_attention=null"),
        ("tokenizer=bpe", "tokenizer=unigram"),
        ("schedule=linear", "schedule=constant"),
        ("loader.max_tokens=150", "loader.max_tokens=200"),
        ("trainer.accumulate_grad_batches=2", "trainer.accumulate_grad_batches=1"),
        ("tokenizer.vocab_size=50", "tokenizer.vocab_size=60"),
        ("task.label_smoothing=0.3", "task.label_smoothing=0.1"),
        ("data.source_suffix=de", "data.source_suffix=en"),
        ("data.train=[train,val]", "data.train=train"),
        ("embeddings=vectors.txt", "embeddings=null"),
    ],
)
def test_settings_that_a_step_depends_on_must_be_those_of_before(corpus, trained, word, text):
    key = word.partition("=")[0]
    words = [w for w in words_of(corpus, trained) if not w.startswith(f"{key}=")]
    with pytest.raises(UserError, match="holds a run with") as told:
        phase_of(checked_training(*words, word).resolved())
    shapes = word.startswith(("attention", "tokenizer"))
    change = "" if shapes else f"add resume={trained} to change them, "
    assert str(told.value) == (
        f"run_dir={trained} holds a run with {text}, but this command has {word}; use the same "
        f"settings, {change}or choose another directory"
    )


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("trainer.max_steps=9", "resumable"),
        ("trainer.max_epochs=3", "resumable"),
        ("checkpoint.count=2", "resumable"),
        ("task.final=null", "resumable"),
        ("task.final.splits=[val,test]", "resumable"),
        ("generation=greedy", "resumable"),
        ("trainer.devices=2", "finished"),
        ("loader.num_workers=1", "finished"),
        ("data.alignments=links", "finished"),
        ("logger=[]", "finished"),
        ("trainer.log_every_n_steps=7", "finished"),
        ("name=other", "finished"),
        ("resume=true", "finished"),
    ],
)
def test_other_settings_are_free(corpus, trained, word, place):
    key = word.partition("=")[0]
    dropped = ("generation.beam_size",) if key == "generation" else ()
    words = [w for w in words_of(corpus, trained) if w.partition("=")[0] not in (key, *dropped)]
    assert phase_of(checked_training(*words, word).resolved()) == place


def test_what_cannot_go_on_is_refused(capfd, corpus, trained, tmp_path):
    for word in ("resume=false", "resume=null"):
        text = refusal(capfd, "train", *words_of(corpus, trained, word))
        assert text.startswith(f"run_dir={trained} already holds a run; continue it with resume=a")
    (tmp_path / "model").mkdir()
    (tmp_path / "config.yaml").write_bytes((trained / "config.yaml").read_bytes())
    text = refusal(capfd, "train", *words_of(corpus, tmp_path))
    assert text == f"run_dir={tmp_path} holds a bundle but no checkpoint; choose another directory"
    (tmp_path / "config.yaml").write_text("{")
    text = refusal(capfd, "train", *words_of(corpus, tmp_path))
    assert text == f"run_dir={tmp_path}: cannot read {tmp_path}/config.yaml; start a new run"


def test_ranks_that_torchrun_starts_again_go_on_whatever_was_asked(corpus, trained, monkeypatch):
    asked = checked_training(*words_of(corpus, trained, "resume=false"))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert phase_of(asked.resolved()) == "finished"


def test_the_lock_of_a_process_that_has_died_holds_nothing(capfd, corpus, trained):
    child = os.fork()
    if child == 0:
        lock = FileLock(trained / ".lock")
        lock.acquire()
        (trained / "held").touch()
        time.sleep(60)
        os._exit(0)
    while not (trained / "held").exists():
        time.sleep(0.01)
    (trained / "held").unlink()
    words = words_of(corpus, trained)
    assert "is in use by another process" in refusal(capfd, "train", *words)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert run(capfd, "train", *words).code == 0
    assert not (trained / ".lock").exists()


def test_a_sweep_goes_on_and_its_table_shows_all_jobs(capfd, corpus, tmp_path):
    words = ["-m", *train_arguments(corpus, "seed=1,2", f"hydra.sweep.dir={tmp_path}")]
    killed_at_once = [word for word in words if word != "-m" and not word.startswith("seed")]
    train(["-m", *killed_at_once, "seed=1"])
    killed([*killed_at_once, f"run_dir={tmp_path}/1", "seed=2"], step=3)
    ended = run(capfd, "train", *words)
    assert ended.code == 0, ended.err
    told = [line for line in ended.err.splitlines() if line.startswith(("run_dir", "resuming"))]
    assert told[0].startswith(f"run_dir={tmp_path}/0 finished after 4 steps")
    assert told[1:] == [f"resuming training in {tmp_path}/1"]
    _, *lines = (tmp_path / "jobs.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["0", "1"]
