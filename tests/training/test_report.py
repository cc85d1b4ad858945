"""What a run counts, and says of it."""

import math
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seqattn.data.batch import collate
from seqattn.screen import duration, progress
from seqattn.training.progress import EpochLines, score_text
from seqattn.training.report import BestScore, ClipShare, Throughput, TimeLeft, device_figures
from tests.training.stand_ins import Module, trainer


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: now.seconds)
    return now


# 10 target tokens of 12 places, and 4 source tokens of 4: padding 2/16
BATCH = collate([[4, 3], [5, 3]], [[4, 5, 6, 7, 8, 3], [4, 5, 6, 3]], index=[0, 1])


RATES = [{"lr": 0.25}]


def step(watch, clock, waiting, busy, batch=BATCH, ranks=1):
    clock.seconds += waiting
    watch.begin_step(RATES)
    clock.seconds += busy
    watch.end_step([batch], ranks)


def test_throughput_counts_tokens_padding_and_waiting(clock):
    watch = Throughput()
    watch.begin_epoch()
    step(watch, clock, waiting=1.0, busy=3.0, ranks=3)
    step(watch, clock, waiting=0.5, busy=0.5, ranks=3)
    assert watch.tokens == 2 * 3 * 10
    assert watch.seconds == 5.0
    assert watch.summary() == {
        "tokens_per_second": 60 / 5,
        "padding_share": pytest.approx(2 / 16),
        "waiting_share": 1.5 / 5,
    }
    figures = watch.figures()
    assert figures == {**watch.summary(), "tokens": 60, "lr": 0.25}


def test_padding_and_tokens_are_of_the_whole_run_speed_of_this_process(clock):
    watch = Throughput()
    watch.begin_epoch()
    step(watch, clock, waiting=1.0, busy=9.0)
    again = Throughput()
    again.load_state_dict(watch.state_dict())
    full = collate([[4, 3]], [[4, 3]], index=[0])  # without padding
    for _ in range(2):
        step(again, clock, waiting=0.0, busy=2.0, batch=full)
    figures = again.figures()
    assert figures["padding_share"] == pytest.approx(2 / 16 / 3)
    assert figures["tokens"] == 10 + 2 * 2  # of both processes
    assert again.state_dict()["tokens"] == 14
    assert figures["tokens_per_second"] == 4 / 4
    assert again.summary()["tokens_per_second"] == 1.0
    assert again.seconds == 4.0


def test_the_speed_is_of_the_steps_since_the_last_figures(clock):
    watch, speeds = Throughput(), []
    watch.begin_epoch()
    for busy in (1.0, 4.0):
        for _ in range(2):
            step(watch, clock, waiting=0.0, busy=busy)
        speeds.append(watch.figures()["tokens_per_second"])
    assert speeds == [20 / 2, 20 / 8]


def test_the_learning_rates_are_those_of_the_step_that_ends():
    watch, groups = Throughput(), [{"lr": 0.5, "factor": 2, "part": "*.bias"}]
    groups.append({"lr": 0.25, "factor": 1.0, "part": ""})
    watch.begin_step(groups)
    groups[0]["lr"] = 9.0  # the schedule's, for the next step
    watch.end_step([BATCH], ranks=1)
    rates = {name: value for name, value in watch.figures().items() if name.startswith("lr")}
    assert rates == {"lr": 0.25, "lr/_.bias": 0.5}


def test_validation_is_neither_waiting_nor_training(clock):
    watch = Throughput()
    watch.begin_epoch()
    step(watch, clock, waiting=0.0, busy=1.0)
    watch.pause()
    clock.seconds += 50
    step(watch, clock, waiting=0.0, busy=1.0)
    assert watch.seconds == 2.0
    assert watch.waiting_seconds == 0.0


def test_a_run_without_a_step_has_a_summary():
    assert not any(math.isnan(value) for value in Throughput().summary().values())


def lines_of(best=None, **options):
    return EpochLines(Throughput(), TimeLeft(), best, **options)


def test_a_line_after_each_validation_tells_the_epoch_the_step_and_the_scores(capsys):
    scores = {"train/loss": torch.tensor(1.5), "val/loss": 2.0, "val/nll": 1.75}
    scores["val/bleu"] = 33.25
    lines_of().end_validation(trainer(callback_metrics=scores), Module())
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
    best = BestScore("val/bleu", "max")
    lines = lines_of(best)
    for step, bleu in ((12, 33.25), (24, 30.0)):
        owner = trainer(callback_metrics={"val/bleu": bleu}, global_step=step)
        best.end_validation(owner.callback_metrics, step)
        lines.end_validation(owner, Module())
    first, second = capsys.readouterr().err.splitlines()
    assert "val bleu 33.250 (best)" in first
    assert "val bleu 30.000 (best 33.250, step 12)" in second
    again = BestScore("val/bleu", "max")
    again.load_state_dict(best.state_dict())
    assert (again.best, again.step, again.count) == (33.25, 12, 2)


def test_a_run_that_goes_on_tells_nothing_of_a_validation_that_it_has_not_done():
    best = BestScore("val/loss", "min")
    best.best, best.step = 2.0, 5
    scores = {"train/loss": torch.tensor(3.0)}
    told = lines_of(best).figures(trainer(callback_metrics=scores), Module())
    assert told.startswith("train loss 3.000 · ")
    assert "val" not in told


def test_without_a_terminal_a_line_comes_every_so_often_with_the_time_left(clock, capsys):
    lines, owner = lines_of(every=30.0), trainer(global_step=0)
    lines.time_left.begin(owner)
    lines.begin()
    for owner.global_step in range(1, 9):
        clock.seconds += 10
        lines.end_step(owner, Module())
        left = lines.time_left.figures(owner.global_step)
        assert left == {"seconds_left": 2400.0 - 10 * owner.global_step}
    owner.callback_metrics = {"train/loss": 1.5, "val/loss": 2.0}  # of an earlier validation
    clock.seconds += 30
    lines.end_step(owner, Module())
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
    lines, module = lines_of(every=math.inf), Module()
    lines.time_left.begin(owner)
    for owner.global_step in range(first + 1, first + 20):
        clock.seconds += 10
        lines.end_step(owner, module)
    assert capsys.readouterr().err == ""
    for owner.global_step in (first + 20, first + 21):
        clock.seconds += 10
        lines.end_step(owner, module)
    assert capsys.readouterr().err == f"{text}\n" * bool(text)


def test_other_work_tells_how_far_it_is(clock, capsys):
    with progress("scoring val", "texts") as advance:
        for done in range(0, 1960, 64):
            clock.seconds += 5
            advance(done, 1960)
    assert capsys.readouterr().err.startswith(
        "scoring val · 320 of 1,960 texts · 2 min 34 s left\n"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (7325, "2 h 2 min")]
)
def test_times_are_said_in_words(seconds, text):
    assert duration(seconds) == text


def test_a_score_of_an_earlier_epoch_is_not_told_again(capsys):
    module = Module()
    module.generates_now = False
    scores = {"val/loss": 2.0, "val/bleu": 33.25}
    lines_of().end_validation(trainer(callback_metrics=scores), module)
    assert "bleu" not in capsys.readouterr().err


NORMS = (0.5, 2.0, 3.0, 1.0, 1.5, 0.1)


def clip(share, steps, limit=1.0):
    found = []
    for step in steps:
        share.end_step(torch.tensor(NORMS[step - 1]), limit)
        if step % 3 == 0:
            found += map(float, share.figures().values())
    return found


def test_the_share_of_clipped_updates_is_of_those_since_the_last_figures():
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
    figures = device_figures(torch.device("cpu"))
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert figures == {"peak_memory_mb": pytest.approx(int(peak[1]) * 1024 / 1e6, rel=0.02)}


def test_a_gpu_tells_how_busy_it_is_where_that_can_be_had(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3_500_000)
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 85)
    found = device_figures(torch.device("cuda"))
    assert found == {"peak_memory_mb": 3.5, "gpu_busy_share": 0.85}

    def not_supported(device):
        raise OSError("as the package's own errors of a part of a GPU")

    monkeypatch.setattr(torch.cuda, "utilization", not_supported)
    assert device_figures(torch.device("cuda")) == {"peak_memory_mb": 3.5}
