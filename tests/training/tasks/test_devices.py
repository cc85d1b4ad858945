"""What a task tells a GPU, for which stand-ins serve here: none of it waits, nor stays behind."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from seqattn.data.batch import Batch
from seqattn.metrics.means import TokenScores
from seqattn.training.step_exchange import StepExchange
from tests.training.tasks.test_effective_batch import batch_of, fit, rows, task_of

TRAINER = SimpleNamespace(world_size=1, precision="32-true")


@pytest.mark.parametrize(("device", "waits"), [("cuda:0", False), ("cpu", True), ("mps", True)])
def test_batches_go_to_a_gpu_while_it_works(monkeypatch, device, waits):
    sent = []
    monkeypatch.setattr(Batch, "to", lambda *told, **named: sent.append((told[1:], named)))
    strategy = SingleDeviceStrategy()
    strategy.connect(task_of())
    batch = batch_of(*rows(2, seed=1))
    strategy.batch_to_device(batch, torch.device(device))
    strategy.batch_to_device([batch, batch], torch.device(device))  # those of a step
    assert sent == [((torch.device(device),), {"non_blocking": not waits})] * 3


def test_the_optimizer_itself_is_told_to_skip_an_update(monkeypatch):
    """Lightning's wrapper would keep what is set on it."""
    task, told = task_of(), []

    def drop(norm, optimizer):
        told.append(type(optimizer))
        return norm.isfinite()

    monkeypatch.setattr(task, "_drop_unless_finite", drop)
    fit(task, [rows(2, seed=1)])
    assert told == [torch.optim.SGD]


class Late(torch.Tensor):
    """Numbers of a CPU that say they are a GPU's."""

    is_cuda = True


@pytest.fixture
def _late(monkeypatch):
    own = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda x, **_: own(x.as_subclass(torch.Tensor)))
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)


@pytest.mark.usefixtures("_late")
def test_a_training_that_begins_once_more_hears_nothing_of_the_last():
    task = task_of(dtype=torch.float32)
    task.exchange = exchange = StepExchange()

    def step(finite):
        exchange.update(torch.tensor(finite).as_subclass(Late), TRAINER)
        return exchange.skipped

    assert [step(finite) for finite in (True, False, False)] == [False, False, True]
    settings = SimpleNamespace(last_epoch=0, base_lrs=[])
    task.trainer = SimpleNamespace(
        optimizers=[SimpleNamespace(param_groups=[])],
        lr_scheduler_configs=[SimpleNamespace(scheduler=settings)],
    )
    task.on_train_start()
    assert not exchange.skipped
    assert [step(True), step(True)] == [False, False]


def test_a_loss_that_is_not_finite_is_counted_on_its_device(monkeypatch):
    assert_counted_on_its_device(TokenScores(), 3, monkeypatch)


def assert_counted_on_its_device(metric, sums, monkeypatch):
    weights = []
    for mean in metric.values():
        monkeypatch.setattr(mean, "update", lambda x, weight: weights.append((x, weight)))
    metric.update(*torch.zeros(sums, device="meta").unbind(), 4)
    assert len(weights) == sums
    assert all(weight.is_meta and weight is not value for value, weight in weights)
