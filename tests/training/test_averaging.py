"""Averages of checkpoints."""

from types import SimpleNamespace

import pytest
import torch
from lightning import LightningModule

from seqattn.training.averaging import MovingAverage, average_weights


def state(seed, steps):
    source = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(2, 5, generator=source),
        "half": torch.randn(3, generator=source).bfloat16(),
        "steps": torch.tensor(steps),
    }


def test_each_weight_is_the_mean_in_its_own_type_and_counters_are_the_last():
    states = [state(seed, seed * 10) for seed in range(3)]
    mean = average_weights(iter(states))
    stacked = torch.stack([s["weight"] for s in states]).double()
    assert torch.equal(mean["weight"], stacked.mean(0).float())
    half = torch.stack([s["half"] for s in states]).double().mean(0).bfloat16()
    assert torch.equal(mean["half"], half)
    assert mean["half"].dtype == torch.bfloat16
    assert mean["steps"] == 20
    assert list(mean) == ["weight", "half", "steps"]


def test_one_checkpoint_comes_back_to_the_bit_and_is_no_view():
    one = state(0, 7)
    mean = average_weights([one])
    for name, weight in one.items():
        assert torch.equal(mean[name], weight)
        assert mean[name].data_ptr() != weight.data_ptr()


def test_what_is_averaged_is_left_as_it_was():
    states = [state(seed, 1) for seed in range(2)]
    average_weights(states)
    assert all(torch.equal(states[s]["weight"], state(s, 1)["weight"]) for s in range(2))


def test_no_checkpoint_or_checkpoints_of_other_models_are_refused():
    with pytest.raises(ValueError, match="no checkpoint to average"):
        average_weights([])
    with pytest.raises(ValueError, match="different weights"):
        average_weights([{"a": torch.ones(1)}, {"b": torch.ones(1)}])


def test_a_moving_average_lies_where_the_weights_will_be_not_where_they_are_made():
    module = LightningModule()
    module.weight = torch.nn.Parameter(torch.ones(3))
    average, device = MovingAverage(), torch.device("meta")
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=device))
    average.setup(trainer, module, "fit")
    assert [weight.device for weight in average._average_model.parameters()] == [device]
    assert module.weight.device.type == "cpu"
