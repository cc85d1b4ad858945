"""Loggers that go on where a run goes on."""

import csv
import os
from pathlib import Path

import pytest
import torch
import wandb
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from seqattn.errors import UserError
from seqattn.training.loggers import (
    CSVFile,
    MLflowRun,
    TensorBoardRun,
    WandbRun,
    made_loggers,
)
from seqattn.training.run_logger import run_loggers, show_histograms
from tests.training.wandb_files import read


def rows(home):
    with (home / "csv" / "version_0" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_file_of_figures_is_gone_on_with(tmp_path):
    first = CSVFile(str(tmp_path))
    for step in range(3):
        first.log_metrics({"loss": 1.0 + step}, step)
    assert [row["loss"] for row in rows(tmp_path)] == ["1.0", "2.0", "3.0"]  # and none in memory
    second = CSVFile(str(tmp_path))
    second.resume(2)
    second.log_metrics({"loss": 9.0}, 2)
    second.log_metrics({"loss": 10.0, "bleu": 5.0}, 3)
    found = [(row["step"], row["loss"], row["bleu"]) for row in rows(tmp_path)]
    assert found == [("0", "1.0", ""), ("1", "2.0", ""), ("2", "9.0", ""), ("3", "10.0", "5.0")]


def test_a_row_that_was_cut_is_dropped(tmp_path):
    logger = CSVFile(str(tmp_path))
    logger.log_metrics({"a loss": 1.5}, 0)
    file = tmp_path / "csv" / "version_0" / "metrics.csv"
    file.write_text(file.read_text() + "2.")
    again = CSVFile(str(tmp_path))
    again.resume(5)
    again.log_metrics({"a loss": 2.5}, 1)
    assert [row["a loss"] for row in rows(tmp_path)] == ["1.5", "2.5"]


def test_figures_of_another_beginning_are_dropped(tmp_path):
    CSVFile(str(tmp_path)).log_metrics({"other": 1.0}, 0)
    again = CSVFile(str(tmp_path))
    again.resume(0)
    again.log_metrics({"loss": 2.0}, 0)
    assert rows(tmp_path) == [{"loss": "2.0", "step": "0"}]


def test_a_file_that_is_begun_anew_by_the_same_logger_has_a_header(tmp_path):
    logger = CSVFile(str(tmp_path))
    logger.log_metrics({"loss": 1.0, "bleu": 3.0}, 0)
    logger.resume(0)  # where a training goes back to its start
    logger.log_metrics({"loss": 2.0}, 0)
    assert rows(tmp_path) == [{"loss": "2.0", "step": "0"}]


def test_tensorboard_shows_each_step_once(tmp_path, monkeypatch):
    # files of one second are read in the order of a count's digits, where 10 comes before 9
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(10))

    def log(logger, steps, begin):
        logger.resume(begin)
        for step in steps:
            logger.log_metrics({"loss": float(step + 10 * begin)}, step)
        logger.finalize("failed")

    def made():
        return TensorBoardRun(str(tmp_path), "tensorboard", version=0)

    log(made(), range(6), 0)
    second = made()
    log(second, range(4, 8), 4)
    log(second, range(6, 9), 6)  # the same one, where a training goes back
    events = EventAccumulator(str(tmp_path / "tensorboard" / "version_0")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    values = [0, 1, 2, 3, 44, 45, 66, 67, 68]
    assert found == list(enumerate(map(float, values)))


def test_tensorboard_shows_the_settings_as_a_text(tmp_path):
    logger = TensorBoardRun(str(tmp_path), "tensorboard", version=0)
    logger.log_settings({"model": {"dim": 16}, "parameters": 7}, 4)
    logger.finalize("success")
    [event] = EventAccumulator(logger.log_dir).Reload().Tensors("settings/text_summary")
    assert event.step == 4
    text = "```yaml\nmodel:\n  dim: 16\nparameters: 7\n```"
    assert event.tensor_proto.string_val[0].decode() == text


def test_tensorboard_shows_each_cell_of_a_table_on_one_line_and_in_its_column(tmp_path):
    logger = TensorBoardRun(str(tmp_path), "tensorboard", version=0)
    logger.show_table("samples", [["step", "1"], ["7", "a | b\nc"]], 6)
    logger.finalize("success")
    [event] = EventAccumulator(logger.log_dir).Reload().Tensors("samples/text_summary")
    assert event.step == 6
    text = "| step | 1 |\n| --- | --- |\n| 7 | a \\| b c |"
    assert event.tensor_proto.string_val[0].decode() == text


@pytest.fixture
def anonymous(tmp_path, monkeypatch):
    """Nobody's machine: no key, no folder of settings."""
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    wandb.teardown()


def wandb_logger(home, **options):
    settings = wandb.Settings(silent=True, init_timeout=2)
    return WandbRun(save_dir=str(home), project="seqattn", settings=settings, **options)


@pytest.mark.slow
def test_a_wandb_run_has_one_id_group_and_tags_however_often_it_goes_on(tmp_path, anonymous):
    bundle = tmp_path / "model"
    bundle.mkdir()
    (bundle / "config.yaml").write_text("format: a\n")
    for segment in range(2):
        logger = wandb_logger(tmp_path, mode="offline", tags=["mine"], artifacts=True)
        logger.open(tmp_path, ["attention=mha", "x" * 99], "a sweep")
        logger.log_settings({"model": {"dim": 16}, "environment": {"commit": "c0"}}, 0)
        logger.log_metrics({"loss": 1.5 + segment}, 3 + segment)
        logger.keep(bundle, "model", ["best"])
        logger.keep(tmp_path / "report.html", "report", ["best"])  # which is not there
        logger.experiment.finish()
    wandb.teardown()  # all is written then
    name = (tmp_path / "wandb.id").read_text()
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*/run-{name}.wandb"))
    found = [read(file) for file in files]
    assert [one.id for one in found] == [name, name]
    for segment, one in enumerate(found):
        assert (one.group, one.tags) == ("a sweep", ["mine", "attention=mha", "x" * 64])
        assert one.config["model"] == {"dim": 16}
        assert one.config["environment"] == {"commit": "c0"}
        [row] = one.rows
        assert (row["loss"], row["trainer/global_step"]) == (1.5 + segment, 3 + segment)
        assert one.artifacts == {"model": ["best", "latest"]}


@pytest.mark.slow
def test_wandb_that_cannot_be_reached_logs_offline_and_says_so(
    tmp_path, anonymous, monkeypatch, capfd
):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    logger = wandb_logger(tmp_path)
    logger.open(tmp_path, [], None)
    logger.log_metrics({"loss": 1.0}, 0)
    assert logger.experiment.settings.mode == "offline"
    logger.experiment.finish()
    told = [line for line in capfd.readouterr().err.splitlines() if "cannot reach wandb" in line]
    assert len(told) == 1
    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))


def test_a_logger_of_lightning_takes_settings_and_scores_and_leaves_out_what_it_cannot_show(
    tmp_path,
):
    logger = CSVLogger(str(tmp_path))
    [known], [file] = run_loggers([logger]), run_loggers([CSVFile(str(tmp_path / "own"))])
    for one in (known, file):
        one.open(tmp_path, [], None)
        one.resume(0)
        one.log_settings({"dim": 16}, 0)
        one.show_table("samples", [["step"], ["1"]], 0)
        one.show_figure("attention", Figure(), 0)
        one.show_histogram("gradients", torch.zeros(3), 0)
        one.log_scores({"final/val/bleu": 7.0}, {"dim": 16}, 3)
        one.keep(tmp_path, "model", ["best"])
        one.close()
    with Path(logger.experiment.metrics_file_path).open(newline="") as written:
        assert [*csv.DictReader(written)] == [{"final/val/bleu": "7.0", "step": "3"}]
    assert rows(tmp_path / "own") == [{"final/val/bleu": "7.0", "step": "3"}]
    assert not show_histograms([CSVLogger, CSVFile, TensorBoardLogger])
    assert show_histograms([CSVFile, TensorBoardRun])
    assert show_histograms([WandbRun])


def test_a_logger_whose_package_is_not_there_is_refused():
    def make():
        raise ImportError("no module named mlflow")

    with pytest.raises(UserError, match="logger: no module named mlflow"):
        made_loggers({"mlflow": make})


def test_mlflow_keeps_one_run_with_its_first_settings(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        [logger] = made_loggers({"mlflow": lambda: MLflowRun(".", tracking_uri="sqlite:///a.db")})
        logger.open(tmp_path, ["attention=gqa"], "sweep")
        logger.log_settings({"model": {"dim": 8 + number}}, 0)
        logger.log_metrics({"val/bleu": 20.0 + number}, number)
        logger.close()
    found = logger.experiment.get_run((tmp_path / "mlflow.id").read_text())
    assert (found.data.params, found.data.metrics) == ({"model/dim": "8"}, {"val/bleu": 21.0})
    assert (found.data.tags["attention"], found.data.tags["sweep"]) == ("gqa", "sweep")
    history = logger.experiment.get_metric_history(logger.run_id, "val/bleu")
    assert [point.step for point in history] == [0, 1]


def test_without_mlflow_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("lightning.pytorch.loggers.mlflow._MLFLOW_AVAILABLE", False)
    with pytest.raises(UserError, match=r"^logger=mlflow needs mlflow; run pip .*\[mlflow\]"):
        made_loggers({"mlflow": lambda: MLflowRun(str(tmp_path))})
