"""Faults that end a training in one line that says what to do."""

import os
import re
import signal

import pytest
import torch
from torch.utils.data import get_worker_info

from seqattn.data.token_dataset import TokenDataset
from seqattn.models.base import Seq2SeqModel
from tests.cli.small import refusal, train, train_arguments

ERRORS = {
    "GPU": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "CPU": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."),
}
SMALLER = (
    "out of memory; set loader.max_tokens=100 (now 200), and trainer.accumulate_grad_batches=2 to "
    "keep the effective batch size"
)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), SMALLER),
        (
            ("loader.max_tokens=60",),
            "out of memory; set loader.max_tokens=50 (now 60), and "
            "trainer.accumulate_grad_batches=2 to keep the effective batch size",
        ),
        (
            ("loader.max_tokens=50", "trainer.accumulate_grad_batches=2"),
            "out of memory on a batch of one row; lower loader.max_length (now 50) or use a "
            "smaller model",
        ),
    ],
)
def test_a_batch_beyond_the_memory_is_refused_with_what_to_set(
    capfd, corpus, tmp_path, monkeypatch, error, words, text
):
    own, calls = Seq2SeqModel.loss, []

    def loss(*arguments, **options):
        calls.append(None)
        if len(calls) >= 3:
            raise ERRORS[error]()
        return own(*arguments, **options)

    monkeypatch.setattr(Seq2SeqModel, "loss", loss)
    words = train_arguments(corpus, f"run_dir={tmp_path}/run", *words)
    assert refusal(capfd, "train", *words) == text
    assert not (tmp_path / "run" / "model").exists()


def test_other_errors_stay_what_they_are(corpus, tmp_path, monkeypatch):
    def loss(*arguments, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Seq2SeqModel, "loss", loss)
    with pytest.raises(RuntimeError, match="a bug"):
        train(train_arguments(corpus, f"run_dir={tmp_path}/run"))


def test_a_data_worker_that_dies_ends_the_training_in_a_line(capfd, corpus, tmp_path, monkeypatch):
    collate = TokenDataset.batch

    def dying(data, places):
        if get_worker_info() is not None and data.epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return collate(data, places)

    monkeypatch.setattr(TokenDataset, "batch", dying)
    words = train_arguments(corpus, f"run_dir={tmp_path}/run", "loader.num_workers=1", steps=9)
    text = refusal(capfd, "train", *words)
    assert re.match(r"DataLoader worker \(pid.*\) .*; if memory ran out, lower loader.num_w", text)
    assert any((tmp_path / "run" / "checkpoints").glob("step-*"))
