"""A learning rate is found before a run, and nothing is left of the search."""

import re

import pytest
import torch
from lightning import LightningModule, Trainer

from seqattn.cli.main import run_subcommand
from seqattn.training.range_test import RangeTest
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from tests.cli.small import refusal, succeed, train_arguments


class Bowl(LightningModule):
    """x^2/2 by plain gradient descent from x = 1: it converges below a rate of 2."""

    def __init__(self, slope=1.0, factor=1.0):
        super().__init__()
        self.x, self.slope, self.factor = torch.nn.Parameter(torch.ones(())), slope, factor

    def training_step(self, batch, batch_idx):
        loss = self.slope * self.x.square() / 2 + 1
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD([{"params": [self.x], "factor": self.factor}], lr=7.0)


def tried(tmp_path, slope=1.0, factor=1.0, **bounds):
    test = RangeTest(steps=60, **bounds)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(
        max_steps=60, callbacks=[test], default_root_dir=tmp_path, accelerator="cpu",
        enable_model_summary=False, **quiet,
    )  # fmt: skip
    trainer.fit(Bowl(slope, factor), torch.utils.data.DataLoader(range(100)))
    return test


def test_rates_grow_by_a_constant_factor_and_stop_where_the_loss_diverges(tmp_path):
    test = tried(tmp_path, lowest=1e-3, highest=100.0)
    factors = {round(b / a, 6) for a, b in zip(test.rates, test.rates[1:])}
    assert factors == {round(1e5 ** (1 / 59), 6)}
    assert test.rates[0] == pytest.approx(1e-3)
    assert 2 < test.rates[-1] < 100
    assert len(test.losses) == len(test.rates)
    assert 0.01 < test.suggestion < 1


def test_a_part_with_a_factor_moves_at_its_own_rate(tmp_path):
    one = tried(tmp_path, lowest=1e-3, highest=1.0)
    half = tried(tmp_path, factor=0.5, lowest=2e-3, highest=2.0)
    assert half.losses == pytest.approx(one.losses)


@pytest.mark.parametrize("slope", [0.0, float("nan")])
def test_no_rate_is_found_where_the_loss_does_not_fall(tmp_path, slope):
    assert tried(tmp_path, slope=slope).suggestion is None


@pytest.mark.parametrize(
    ("words", "factor"),
    [(("schedule=inverse_sqrt",), 1), (("schedule=noam", "schedule.warmup_steps=4"), 8)],
)
def test_the_command_names_a_rate_that_learns_and_leaves_nothing(
    capfd, corpus, tmp_path, words, factor
):
    """Noam's peak is a factor of (16 x 4)^-0.5 on `optimizer.lr`."""
    words = (*words, f"run_dir={tmp_path}/run", "find_lr=true")
    out = succeed(capfd, "train", *train_arguments(corpus, *words))
    found = re.search(r"^optimizer\.lr=(\S+)$", out, re.M)
    assert 1e-3 < float(found[1]) / factor < 1e-1  # the small models of tests learn with 1e-2
    assert "Loss by rate" in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "batches"),
    [
        (("loader.step_batches=3",), 3),
        (("trainer.devices=2", "trainer.accumulate_grad_batches=2"), 4),
    ],
)
def test_a_step_has_as_many_batches_as_in_the_training(
    monkeypatch, capfd, corpus, tmp_path, words, batches
):
    calls, training_step = [], Seq2SeqTask.training_step

    def counted(task, batch, batch_idx):
        calls.append((task.global_step, len(batch)))
        task.trainer.should_stop = task.global_step == 2
        return training_step(task, batch, batch_idx)

    monkeypatch.setattr(Seq2SeqTask, "training_step", counted)
    given = train_arguments(corpus, *words, f"run_dir={tmp_path}/run", "find_lr=true")
    run_subcommand("train", given)
    assert calls.count((1, batches)) == 1


def test_it_is_for_new_runs(capfd, corpus, tmp_path):
    (tmp_path / "overrides.yaml").write_text("[]\n")
    said = refusal(capfd, "train", *train_arguments(corpus, f"resume={tmp_path}", "find_lr=true"))
    assert said == "find_lr=true works on a new run only; remove resume"
