"""Trainings that draw the attention at each validation."""

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.small import train, train_arguments


def drawn(corpus, run_dir, *words):
    train(train_arguments(corpus, f"run_dir={run_dir}", *words, draws=True))
    return run_dir


def test_a_run_that_draws_has_the_weights_of_one_that_does_not(corpus, trained, tmp_path):
    run = drawn(corpus, tmp_path / "run")
    assert sorted(path.name for path in (run / "heatmaps").iterdir()) == [
        "cross_attention_step_000002.png",
        "cross_attention_step_000004.png",
    ]
    mine, undrawn = (load_file(one / "model/model.safetensors") for one in (run, trained))
    assert all(torch.equal(mine[name], undrawn[name]) for name in undrawn)


@pytest.mark.exhaustive
def test_two_ranks_in_shards_draw(corpus, tmp_path):
    words = ("trainer=fsdp2", "trainer.accelerator=cpu", "trainer.devices=2", "model.dropout=0")
    assert list((drawn(corpus, tmp_path / "run", *words) / "heatmaps").iterdir())
