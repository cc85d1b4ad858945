"""What is logged of clipping, memory, the device and gradients."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.training.loggers import TensorBoardRun
from seqattn.training.monitors import (
    ClipShare,
    DeviceFigures,
    GradientHistograms,
    device_figures,
    gradients_by_part,
)
from tests.nodes import made
from tests.training.test_callbacks import Module, trainer

NORMS = (0.5, 2.0, 3.0, 1.0, 1.5, 0.1)


def clip(callback, steps, limit=1.0, **state):
    module = Module()
    module.optimization = SimpleNamespace(clip=limit)
    for step in steps:
        module.gradient_norm = torch.tensor(NORMS[step - 1])
        owner = trainer(global_step=step, log_every_n_steps=3, **state)
        callback.on_train_batch_end(owner, module)
    return [float(logged["train/clip_share"]) for logged in module.logged]


def test_the_share_of_clipped_updates_is_of_those_since_the_last_log():
    assert clip(ClipShare(), range(1, 7)) == pytest.approx([2 / 3, 1 / 3])


def test_the_share_is_the_same_where_a_run_went_on_between_two_logs():
    first, second = ClipShare(), ClipShare()
    assert clip(first, [1, 2, 3, 4, 5]) == pytest.approx([2 / 3])
    second.load_state_dict(first.state_dict())
    assert clip(second, [6]) == pytest.approx([1 / 3])


def test_runs_without_a_limit_have_no_share():
    assert clip(ClipShare(), range(1, 7), limit=None) == []


@pytest.mark.skipif(sys.platform != "linux", reason="compares with what Linux says")
def test_peak_memory_of_the_process_is_in_megabytes():
    module = Module()
    module.device = torch.device("cpu")
    for step in (1, 2):  # of which the second is logged
        DeviceFigures().on_train_batch_end(trainer(global_step=step), module)
    [logged] = module.logged
    status = Path("/proc/self/status").read_text()
    peak = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert logged["train/peak_memory_mb"] == pytest.approx(int(peak[1]) * 1024 / 1e6, rel=0.02)


def test_a_gpu_tells_how_busy_it_is_where_that_can_be_had(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3_500_000)
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 85)
    found = device_figures(torch.device("cuda"))
    assert found == {"peak_memory_mb": 3.5, "gpu_busy_share": 0.85}

    def not_supported(device):
        raise OSError("as the package's own errors of a part of a GPU")

    monkeypatch.setattr(torch.cuda, "utilization", not_supported)
    assert device_figures(torch.device("cuda")) == {"peak_memory_mb": 3.5}


class Parts(nn.Module):
    """Stands for a model."""

    def __init__(self):
        super().__init__()
        self.source_embedding = nn.Embedding(5, 3)
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 4)])})
        self.head = nn.Linear(4, 7, bias=False)
        for number, parameter in enumerate(self.parameters(), 1):
            parameter.grad = torch.full_like(parameter, float(number))
        self.head.weight.grad = None


def test_gradients_are_gathered_by_part_or_by_layer():
    model = Parts()
    parts = gradients_by_part(model.named_parameters(), layers=False)
    assert {name: len(values) for name, values in parts.items()} == {
        "embeddings": 15,
        "encoder": 6 + 2 + 8 + 4,
    }
    assert parts["encoder"].unique().tolist() == [2.0, 3.0, 4.0, 5.0]
    layers = gradients_by_part(model.named_parameters(), layers=True)
    assert list(layers) == ["embeddings", "encoder.layers.0", "encoder.layers.1"]


def test_gradients_that_are_not_finite_are_in_no_histogram():
    """A GPU's fused optimizer leaves out the update, not the gradients."""
    model = Parts()
    model.source_embedding.weight.grad[0] = torch.inf
    for parameter in model.encoder.parameters():
        parameter.grad.fill_(torch.nan)
    parts = gradients_by_part(model.named_parameters(), layers=False)
    assert {name: values.tolist() for name, values in parts.items()} == {"embeddings": [1.0] * 12}


def test_histograms_go_to_tensorboard_every_so_often_at_the_step_of_the_losses(tmp_path):
    logger = TensorBoardRun(str(tmp_path), "tensorboard", version=0)
    module, histograms = Module(), GradientHistograms(every=2)
    module.model = Parts()
    for step in (1, 2, 3, 4):
        owner = trainer(global_step=step, loggers=[logger])
        histograms.on_fit_start(owner, module)
        histograms.on_train_batch_end(owner, module)
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir, size_guidance={"histograms": 0}).Reload()
    assert sorted(events.Tags()["histograms"]) == ["gradients/embeddings", "gradients/encoder"]
    found = events.Histograms("gradients/encoder")
    assert [(event.step, event.histogram_value.num) for event in found] == [(1, 20), (3, 20)]


@pytest.mark.parametrize(
    "state",
    [{"is_global_zero": False}],
    ids=["another rank"],
)
def test_histograms_are_of_updates_and_written_by_one_rank(tmp_path, state):
    logger = TensorBoardRun(str(tmp_path), "tensorboard", version=0)
    module = Module()
    module.model = Parts()
    owner = trainer(global_step=2, loggers=[logger], **state)
    GradientHistograms(every=2).on_train_batch_end(owner, module)
    logger.finalize("success")
    assert not EventAccumulator(logger.log_dir).Reload().Tags()["histograms"]


def test_histograms_that_nobody_would_show_are_refused(tmp_path):
    owner = trainer(loggers=[CSVLogger(str(tmp_path))])
    with pytest.raises(UserError, match=r"add logger=\[csv,tensorboard\] or logger=\[csv,wandb\]$"):
        GradientHistograms().on_fit_start(owner, Module())
    with pytest.raises(BadValue, match="every"):
        made(GradientHistograms, every=0)
