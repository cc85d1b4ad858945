"""Averages of checkpoints."""

from types import SimpleNamespace

import pytest
import torch
from lightning import LightningModule

from seqattn.training.averaging import MovingAverage, average_weights
from tests.operations import operations


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
    with pytest.raises(ValueError, match="no checkpoints to average"):
        average_weights([])
    with pytest.raises(ValueError, match="same weights"):
        average_weights([{"a": torch.ones(1)}, {"b": torch.ones(1)}])


def test_a_moving_average_lies_where_the_weights_will_be_not_where_they_are_made():
    module = LightningModule()
    module.weight = torch.nn.Parameter(torch.ones(3))
    average, device = MovingAverage(), torch.device("meta")
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=device))
    average.setup(trainer, module, "fit")
    assert [weight.device for weight in average._average_model.parameters()] == [device]
    assert module.weight.device.type == "cpu"


def averaging(device):
    """A module, its average and what tells it that a batch of step `step` has ended."""
    module = LightningModule()
    module.weight = torch.nn.Parameter(torch.zeros(3, device=device))
    module.register_buffer("seen", torch.zeros((), device=device))
    average = MovingAverage(decay=0.75)
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)))
    average.setup(trainer, module, "fit")

    def ended(step):
        average.on_train_batch_end(SimpleNamespace(global_step=step), module, None, None, 0)

    return module, average, ended


def test_a_moving_average_is_of_each_step_once_from_the_first_on():
    module, average, ended = averaging("cpu")
    expected = None
    for step, value in enumerate([4.0, 4.0, 8.0, -2.0]):
        with torch.no_grad():
            module.weight.fill_(value)
        for _ in range(2):  # batches of one step
            ended(step + 1)
        expected = value if expected is None else 0.75 * expected + 0.25 * value
        averaged = average._average_model
        torch.testing.assert_close(averaged.module.weight.detach(), torch.full((3,), expected))
        assert averaged.n_averaged == step + 1
        assert average.state_dict() == {"latest_update_step": step + 1}


def test_a_moving_average_goes_on_reading_nothing_back():
    _, average, ended = averaging("meta")
    average._updated = 1  # the first step is asked about
    with operations() as names:
        ended(2)
    assert names["_foreach_lerp_"] == 1


def test_a_checkpoint_within_a_validation_is_that_of_before_it():
    """Validation puts the average into the model; a signal may save there."""
    module, average, ended = averaging("cpu")
    trainer = SimpleNamespace(lightning_module=module)
    for step, value in enumerate([4.0, 8.0]):
        with torch.no_grad():
            module.weight.fill_(value)
        ended(step + 1)

    def saved():
        weights = {name: part.clone() for name, part in module.state_dict().items()}
        checkpoint = {"state_dict": weights}
        average.on_save_checkpoint(trainer, module, checkpoint)
        named = ("state_dict", "current_model_state")
        return [checkpoint[name]["weight"].tolist() for name in named]

    before = saved()
    assert before == [[5.0] * 3, [8.0] * 3]
    average.on_validation_epoch_start(trainer, module)
    average.on_validation_epoch_end(trainer, module)
    assert module.weight.tolist() == [5.0] * 3
    assert saved() == before
    average.on_validation_end(trainer, module)
    assert module.weight.tolist() == [8.0] * 3
    assert saved() == before
