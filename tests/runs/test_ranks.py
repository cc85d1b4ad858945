"""Several processes that train one model."""

import hashlib
import sys
from pathlib import Path

import pytest
import torch
import yaml

from seqattn.runs.ranks import run_rank
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
    assert out.count("weights kept") == 1
    assert checkpoint(tmp_path / "run")["global_step"] == 2
    assert not list((tmp_path / "run").glob(".*"))
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


QUICK = """#!{python} -S
import os, sys
sys.stderr.close()
if os.environ["RANK"] == "0":
    open(sys.argv[-1] + "/.error", "w").write("the data is gone")
sys.exit(2)
"""
"""A rank that refuses at once, where a real one takes seconds to import what it needs."""


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_refusal_in_a_rank_is_one_line(capfd, corpus, tmp_path, monkeypatch, real):
    if not real:
        (tmp_path / "python").write_text(QUICK.format(python=sys.executable))
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    words = ("trainer.devices=2", f"run_dir={tmp_path}/run", "data.root=nowhere")
    ended = run(capfd, "train", *train_arguments(corpus, *words))
    assert ended.code == 2
    text = "the data's root must be a directory" if real else "the data is gone"
    assert ended.err.splitlines()[-1].startswith(f"error: {text}")
    assert not (tmp_path / "run").exists()


def test_a_rank_that_refuses_leaves_its_reason(capfd, corpus, tmp_path):
    words = train_arguments(corpus, f"run_dir={tmp_path}", "data.root=nowhere")
    settings = composed("train", *words)[0]
    (tmp_path / ".settings.yaml").write_text(yaml.safe_dump(settings))
    assert run_rank(tmp_path) == 2
    assert (tmp_path / ".error").read_text().startswith("the data's root must be a directory")


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")])
def test_ranks_of_others_must_share_a_run_directory(capfd, corpus, monkeypatch, names):
    for name, value in zip(names, ("1", "2")):
        monkeypatch.setenv(name, value)
    assert refusal(capfd, "train", *train_arguments(corpus)) == (
        "several processes that train together must share run_dir=PATH: give it"
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
    assert "holds more than weights and numbers; start a run anew" in text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("model.dim=32", "it has model.dim=16"),
        ("attention=gqa", "it has attention.num_kv_heads=4"),
        ("attention=linear", "it has attention=mha"),
        ("tokenizer.vocab_size=50", "it has tokenizer.vocab_size=60"),
    ],
)
def test_another_model_or_vocabulary_cannot_go_on(capfd, corpus, tmp_path, word, text):
    run = corpus.parent / "first"
    if not run.exists():
        succeed(capfd, "train", *train_arguments(corpus, f"run_dir={run}", steps=2))
    refused = refusal(capfd, "train", f"resume={run}", word)
    assert refused == f"resume={run} cannot go on with another model or vocabulary: {text}"


def test_a_run_of_another_version_cannot_go_on(capfd, corpus, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000002-12345678.ckpt").write_bytes(b"")
    (tmp_path / "overrides.yaml").write_text("[]\n")
    (tmp_path / "config.yaml").write_text("model: {}\n")
    assert "was written by another version" in refusal(capfd, "train", f"resume={tmp_path}")
