"""What the callbacks count and say."""

import math
import time
from types import SimpleNamespace

import pytest
import torch

from seqattn.data.batch import collate
from seqattn.screen import duration, progress
from seqattn.training.callbacks import Diverged, Finite, LastValidation, Monitored, Throughput
from seqattn.training.progress import EpochLines, score_text


class Module:
    """Stands for a LightningModule that keeps what it is told."""

    def __init__(self):
        self.logged = []

    def log(self, name, value, **options):
        self.logged.append({name: value})

    def log_dict(self, values, **options):
        self.logged.append(values)


def trainer(**attributes):
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.25}])
    return SimpleNamespace(
        **{
            "world_size": 1,
            "log_every_n_steps": 2,
            "optimizers": [optimizer],
            "sanity_checking": False,
            "is_global_zero": True,
            "fast_dev_run": False,
            "global_step": 12,
            "current_epoch": 2,
            "loggers": [],
            "state": SimpleNamespace(fn="fit"),
            "callback_metrics": {},
            "estimated_stepping_batches": 240,
            "max_steps": -1,
            "max_epochs": -1,
            "is_last_batch": False,
            "should_stop": False,
            "precision": "32-true",
            **attributes,
        }
    )


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: now.seconds)
    return now


# 10 target tokens of 12 places, and 4 source tokens of 4: padding 2/16
BATCH = collate([[4, 3], [5, 3]], [[4, 5, 6, 7, 8, 3], [4, 5, 6, 3]], index=[0, 1])


def step(watch, clock, owner, module, waiting, busy, batch=BATCH):
    clock.seconds += waiting
    watch.on_train_batch_start(owner, module, [batch], 0)
    clock.seconds += busy
    owner.global_step += 1
    watch.on_train_batch_end(owner, module, None, [batch], 0)


def test_throughput_counts_tokens_padding_and_waiting(clock):
    watch, owner, module = Throughput(), trainer(world_size=3), Module()
    watch.on_train_epoch_start(owner, module)
    step(watch, clock, owner, module, waiting=1.0, busy=3.0)
    assert module.logged == []
    step(watch, clock, owner, module, waiting=0.5, busy=0.5)
    assert watch.tokens == 2 * 3 * 10
    assert watch.seconds == 5.0
    assert watch.summary() == {
        "tokens_per_second": 60 / 5,
        "padding_share": pytest.approx(2 / 16),
        "waiting_share": 1.5 / 5,
    }
    [logged] = module.logged
    assert logged["train/tokens_per_second"] == 12.0
    assert logged["train/lr"] == 0.25
    assert logged["train/waiting_share"] == 0.3


def test_padding_and_the_steps_that_are_logged_are_of_the_whole_run_speed_of_this_process(clock):
    watch, owner, module = Throughput(), trainer(log_every_n_steps=3), Module()
    watch.on_train_epoch_start(owner, module)
    step(watch, clock, owner, module, waiting=1.0, busy=9.0)
    again = Throughput()
    again.load_state_dict(watch.state_dict())
    full = collate([[4, 3]], [[4, 3]], index=[0])  # without padding
    for _ in range(2):
        step(again, clock, owner, module, waiting=0.0, busy=2.0, batch=full)
    [logged] = module.logged
    assert logged["train/padding_share"] == pytest.approx(2 / 16 / 3)
    assert logged["train/tokens"] == 10 + 2 * 2  # of both processes
    assert again.state_dict()["tokens"] == 14
    assert logged["train/tokens_per_second"] == 4 / 4
    assert again.summary()["tokens_per_second"] == 1.0
    assert again.seconds == 4.0


def test_the_rate_that_is_logged_is_of_the_steps_since_the_last(clock):
    watch, owner, module = Throughput(), trainer(), Module()
    watch.on_train_epoch_start(owner, module)
    for busy in (1.0, 1.0, 4.0, 4.0):
        step(watch, clock, owner, module, waiting=0.0, busy=busy)
    rates = [logged["train/tokens_per_second"] for logged in module.logged]
    assert rates == [20 / 2, 20 / 8]


def test_the_learning_rate_that_is_logged_is_that_of_the_step(clock):
    watch, owner, module = Throughput(), trainer(log_every_n_steps=1), Module()
    watch.on_train_batch_start(owner, module, [BATCH], 0)
    owner.optimizers[0].param_groups[0]["lr"] = 0.5  # the schedule's, for the next step
    watch.on_train_batch_end(owner, module, None, [BATCH], 0)
    assert [logged["train/lr"] for logged in module.logged] == [0.25]


def test_the_rate_of_each_part_is_logged_beside_that_of_the_schedule(clock):
    groups = [{"lr": 0.5, "factor": 2, "part": "*.bias"}, {"lr": 0.25, "factor": 1.0, "part": ""}]
    optimizers = [SimpleNamespace(param_groups=groups)]
    watch, owner, module = Throughput(), trainer(optimizers=optimizers), Module()
    for _ in range(2):
        step(watch, clock, owner, module, waiting=0.0, busy=1.0)
    [logged] = module.logged
    rates = {name: value for name, value in logged.items() if name.startswith("train/lr")}
    assert rates == {"train/lr": 0.25, "train/lr/_.bias": 0.5}


def test_validation_is_neither_waiting_nor_training(clock):
    watch, owner, module = Throughput(), trainer(), Module()
    watch.on_train_epoch_start(owner, module)
    step(watch, clock, owner, module, waiting=0.0, busy=1.0)
    watch.on_validation_start(owner, module)
    clock.seconds += 50
    step(watch, clock, owner, module, waiting=0.0, busy=1.0)
    assert watch.seconds == 2.0
    assert watch.waiting_seconds == 0.0


def test_a_run_without_a_step_has_a_summary():
    assert not any(math.isnan(value) for value in Throughput().summary().values())


def test_a_line_after_each_validation_tells_the_epoch_the_step_and_the_scores(capsys):
    scores = {"train/loss": torch.tensor(1.5), "val/loss": 2.0, "val/nll": 1.75}
    scores["val/bleu"] = 33.25
    EpochLines(Throughput()).on_validation_end(trainer(callback_metrics=scores), Module())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "epoch 3 · step 12 · train loss 1.500 · val loss 2.000 (smoothed; nll 1.750) · "
        "val bleu 33.250 · 0 target tokens/s\n"
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("val/accuracy", 0.9149, "91.5%"),
        ("val/accuracy", 0.0004, "0.04%"),
        ("val/accuracy", 0.0, "0.0%"),
        ("val/wer", 46.0, "46.000"),
        ("val/loss", 0.0004, "0.0004"),
        ("val/loss", math.nan, "nan"),
    ],
)
def test_a_small_score_is_not_rounded_to_zero(name, value, text):
    assert score_text(name, value) == text


def test_a_line_says_how_the_watched_number_stands_to_its_best(capsys):
    best = Monitored("val/bleu", "max")
    lines = EpochLines(Throughput(), best)
    for step, bleu in ((12, 33.25), (24, 30.0)):
        owner = trainer(callback_metrics={"val/bleu": bleu}, global_step=step)
        best.on_validation_end(owner, Module())
        lines.on_validation_end(owner, Module())
    first, second = capsys.readouterr().err.splitlines()
    assert "val bleu 33.250 (best)" in first
    assert "val bleu 30.000 (best 33.250, step 12)" in second
    again = Monitored("val/bleu", "max")
    again.load_state_dict(best.state_dict())
    assert (again.best, again.step, again.count) == (33.25, 12, 2)


def test_a_run_that_goes_on_tells_nothing_of_a_validation_that_it_has_not_done():
    best = Monitored("val/loss", "min")
    best.best, best.step = 2.0, 5
    scores = {"train/loss": torch.tensor(3.0)}
    told = EpochLines(Throughput(), best).figures(trainer(callback_metrics=scores), Module())
    assert told.startswith("train loss 3.000 · ")
    assert "val" not in told


def test_without_a_terminal_a_line_comes_every_so_often_with_the_time_left(clock, capsys):
    lines, owner, module = EpochLines(Throughput(), every=30.0), trainer(global_step=0), Module()
    lines.on_train_start(owner, module)
    for owner.global_step in range(1, 9):
        clock.seconds += 10
        lines.on_train_batch_end(owner, module)
    assert module.logged == [{"train/seconds_left": 2400.0 - 10 * step} for step in (2, 4, 6, 8)]
    owner.callback_metrics = {"train/loss": 1.5, "val/loss": 2.0}  # of an earlier validation
    clock.seconds += 30
    lines.on_train_batch_end(owner, module)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "epoch 3 · step 3 · 0 target tokens/s · 39 min 30 s left"
    assert third.startswith("epoch 3 · step 8 · train loss 1.500 · 0 target tokens/s · ")
    assert second.startswith("epoch 3 · step 6 · ")


@pytest.mark.parametrize(
    ("first", "limits", "text"),
    [
        (0, {"max_epochs": 4}, "about 40 min 0 s for 4 epochs (240 steps), plus validations"),
        (0, {}, "about 40 min 0 s for 240 steps, plus validations"),
        (40, {"max_epochs": 4}, "about 33 min 20 s for the remaining 200 steps, plus validations"),
        (0, {"estimated_stepping_batches": math.inf}, ""),
    ],
)
def test_after_some_steps_the_time_of_all_is_said_once(clock, capsys, first, limits, text):
    owner = trainer(global_step=first, **limits)
    lines, module = EpochLines(Throughput(), every=math.inf), Module()
    lines.on_train_start(owner, module)
    for owner.global_step in range(first + 1, first + 20):
        clock.seconds += 10
        lines.on_train_batch_end(owner, module)
    assert capsys.readouterr().err == ""
    for owner.global_step in (first + 20, first + 21):
        clock.seconds += 10
        lines.on_train_batch_end(owner, module)
    assert capsys.readouterr().err == f"{text}\n" * bool(text)


def test_other_work_tells_how_far_it_is(clock, capsys):
    with progress("scoring val", "texts") as tell:
        for done in range(0, 1960, 64):
            clock.seconds += 5
            tell(done, 1960)
    assert capsys.readouterr().err.startswith(
        "scoring val · 320 of 1,960 texts · 2 min 34 s left\n"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (7325, "2 h 2 min")]
)
def test_times_are_said_in_words(seconds, text):
    assert duration(seconds) == text


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
    LastValidation().on_train_batch_end(owner, Module())
    assert owner.should_stop == stops


def test_updates_that_are_left_out_are_told_and_three_in_a_row_end_the_training(capsys):
    watched = trainer(current_epoch=0)
    module, finite = Module(), Finite()
    for skipped in (True, True, False, True, True):
        module.agreement = SimpleNamespace(skipped=skipped)
        finite.on_train_batch_end(watched, module)
    told = capsys.readouterr().err.splitlines()
    assert told == ["skipped the update of step 12: non-finite gradients"] * 4
    with pytest.raises(Diverged, match=r"^training has diverged: non-finite values at step 12; "):
        finite.on_train_batch_end(watched, module)
    watched.callback_metrics = {"val/loss": math.inf}
    with pytest.raises(Diverged):
        Finite().on_validation_end(watched, module)


def test_a_loss_that_rises_is_told_once(capsys):
    watched, module, finite = trainer(), Module(), Finite()
    module.agreement = SimpleNamespace(skipped=False)
    finite.on_train_start(watched, module)
    for loss in (6.0, 8.9, 9.5, 20.0):
        watched.callback_metrics = {"train/loss": torch.tensor(loss), "val/loss": 5.0}
        finite.on_train_batch_end(watched, module)
        finite.on_validation_end(watched, module)
    assert capsys.readouterr().err == (
        "the training loss has risen from 6.000 to 9.500; lower optimizer.lr, or raise "
        "schedule.warmup_steps\n"
    )


def test_a_score_of_an_earlier_epoch_is_not_told_again(capsys):
    module = Module()
    module.generates_now = False
    scores = {"val/loss": 2.0, "val/bleu": 33.25}
    EpochLines(Throughput()).on_validation_end(trainer(callback_metrics=scores), module)
    assert "bleu" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "state",
    [
        {"sanity_checking": True},
        {"state": SimpleNamespace(fn="validate")},
        {"is_global_zero": False},
    ],
)
def test_nothing_is_told_outside_training_or_by_another_rank(state, capsys):
    EpochLines(Throughput()).on_validation_end(trainer(**state), Module())
    assert capsys.readouterr().err == ""
