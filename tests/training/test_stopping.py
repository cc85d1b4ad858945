"""What ends a run."""

import math

import pytest
import torch

from seqattn.training.stopping import Diverged, Finite, validate_last_step
from tests.training.stand_ins import trainer


@pytest.mark.parametrize(
    ("state", "stops"),
    [
        ({"max_steps": 13}, False),
        ({"max_steps": 12}, True),
        ({"max_epochs": 3}, False),
        ({"max_epochs": 3, "is_last_batch": True}, True),
        ({"max_epochs": 4, "is_last_batch": True}, False),
    ],
)
def test_the_last_step_is_validated(state, stops):
    owner = trainer(**state)
    validate_last_step(owner)
    assert owner.should_stop == stops


def test_updates_that_are_left_out_are_told_and_three_in_a_row_end_the_training(capsys):
    watched, finite = trainer(current_epoch=0), Finite()
    for skipped in (True, True, False, True, True):
        finite.end_step(watched, skipped)
    told = capsys.readouterr().err.splitlines()
    assert told == ["skipped the update of step 12: non-finite gradients"] * 4
    with pytest.raises(Diverged, match=r"^training has diverged: non-finite values at step 12; "):
        finite.end_step(watched, skipped=True)
    watched.callback_metrics = {"val/loss": math.inf}
    with pytest.raises(Diverged):
        Finite().end_validation(watched)


def test_a_loss_that_rises_is_told_once(capsys):
    watched, finite = trainer(), Finite()
    finite.begin()
    for loss in (6.0, 8.9, 9.5, 20.0):
        watched.callback_metrics = {"train/loss": torch.tensor(loss), "val/loss": 5.0}
        finite.end_step(watched, skipped=False)
        finite.end_validation(watched)
    assert capsys.readouterr().err == (
        "the training loss has risen from 6.000 to 9.500; lower optimizer.lr, or raise "
        "schedule.warmup_steps\n"
    )
