"""What is logged of gradients."""

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.training.loggers import TensorBoardRun
from seqattn.training.monitors import GradientHistograms, gradients_by_part
from tests.nodes import made
from tests.training.stand_ins import Module, trainer


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
