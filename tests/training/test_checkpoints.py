"""Checkpoints: what is on the disk after whatever happened, and going on from there."""

import errno
import math
import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger

from seqattn import storage
from seqattn.data.loader import BatchLoader, StepLoader, TokenRows
from seqattn.data.options import BatchLimits
from seqattn.errors import Stopped, UserError
from seqattn.training.averaging import MovingAverage
from seqattn.training.checkpoint_files import (
    CheckpointFiles,
    checkpoints,
    newest_whole,
    step_batches,
    weights,
)
from seqattn.training.checkpoints import Checkpoints
from seqattn.training.step_exchange import StepExchange
from seqattn.training.stopping import validate_last_step
from seqattn.training.tasks.settings import draw_seed
from tests.cli.small import place

ROWS, BATCHES = 24, 6  # of an epoch
LAST = LambdaCallback(on_train_batch_end=lambda trainer, *_: validate_last_step(trainer))
BEST = ("val/loss", "min", 2)


class Rows(TokenRows):
    """Rows of four tokens, a batch of which is their numbers."""

    advice = ""
    source_lengths = target_lengths = torch.full((ROWS,), 4).numpy()

    def __len__(self):
        return ROWS

    def batch(self, places):
        return torch.tensor(places)

    def summary(self, split):
        return ""


class Data(LightningDataModule):
    def __init__(self, workers=0, together=1):
        super().__init__()
        self.limits, self.together = BatchLimits(16, num_workers=workers), together

    def train_dataloader(self):
        return StepLoader(Rows(), self.limits, seed=3, step_batches=self.together)

    def val_dataloader(self):
        return BatchLoader(Rows(), self.limits, shuffle=False)


class Watcher(LightningModule):
    """Learns the mean of what it sees, and writes down which rows each step and epoch saw."""

    def __init__(self, at=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.automatic_optimization = False
        self.exchange = StepExchange()
        self.at = at or {}
        """What happens in the steps and validations of these names."""
        self.seen, self.validated = [], []

    def training_step(self, batches, number):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.at.get(self.global_step, lambda: None)()
        self.log("train/weight", float(self.weight.detach()), batch_size=1)
        first = number * self.trainer.datamodule.together
        for turn, batch in enumerate(batches, first):
            self.at.get(f"batch {self.current_epoch}.{turn}", lambda: None)()
            self.seen.append((self.current_epoch, turn, tuple(batch.tolist())))
            self.manual_backward((self.weight - batch.float().mean()).square().sum())
        self.exchange.sum_units(1, self.trainer)
        self.exchange.update(self.weight.grad.norm().isfinite(), self.trainer)
        optimizer.step()

    def validation_step(self, batch, number):
        self.at.get(f"validation {self.global_step}.{number}", lambda: None)()

    def on_validation_epoch_end(self):
        self.validated.append((self.global_step, self.current_epoch))
        self.log("val/loss", float(self.weight.detach()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


class All(CheckpointFiles):
    """Keeps all that was ever written."""

    def _sweep(self):
        pass


def train(
    folder, checkpoint=None, at=None, every=1, files=All, workers=0, minutes=None,
    keeping=BEST, callbacks=(), logger=False, accumulate_grad_batches=1, **options,
):  # fmt: skip
    watcher = at if isinstance(at, Watcher) else Watcher(at)
    kept = Checkpoints(files(folder), *keeping, every, minutes)
    trainer = Trainer(
        accelerator="cpu", logger=logger, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, use_distributed_sampler=False, callbacks=[*callbacks, kept],
        plugins=[kept.files], **options,
    )  # fmt: skip
    try:
        data = Data(workers, accumulate_grad_batches)
        trainer.fit(watcher, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    finally:
        kept.files.wait()
    return watcher


def of_step(folder, step):
    [found] = folder.glob(f"step-{step:06d}-*.ckpt")
    return found


def content(folder, step):
    return torch.load(of_step(folder, step), weights_only=True)


BY_STEPS = {"max_steps": 3 * BATCHES, "max_epochs": -1}


@pytest.mark.parametrize(
    ("stop", "workers"),
    [
        ({"max_epochs": 3}, 0),
        (BY_STEPS, 1),
        (BY_STEPS | {"val_check_interval": 4, "check_val_every_n_epoch": None}, 0),
        ({"max_epochs": 3, "val_check_interval": 0.5}, 0),
        ({"max_epochs": 3, "limit_train_batches": 4}, 0),
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 0),
        ({"max_epochs": 3, "accumulate_grad_batches": 2, "val_check_interval": 0.5}, 0),
        (
            {"max_steps": 8, "max_epochs": -1, "accumulate_grad_batches": 2}
            | {"val_check_interval": 4, "check_val_every_n_epoch": None},
            0,
        ),
    ],
    ids=[
        "epochs",
        "steps",
        "validated by steps",
        "halves",
        "cut short",
        "windows",
        "half windows",
        "both",
    ],
)
def test_a_run_goes_on_from_any_step_as_if_it_had_not_stopped(tmp_path, stop, workers):
    whole = train(tmp_path / "whole", workers=workers, **stop)
    together = stop.get("accumulate_grad_batches", 1)
    assert len({rows for *_, rows in whole.seen}) == len(whole.seen) > 8
    steps = [int(path.stem.split("-")[1]) for path in checkpoints(tmp_path / "whole")]
    assert sorted(steps) == list(range(1, len(whole.seen) // together + 1))

    for step in steps[1 :: 6 if workers else 1]:
        folder = tmp_path / f"from {step}"
        again = train(folder, of_step(tmp_path / "whole", step), workers=workers, **stop)
        assert again.seen == whole.seen[step * together :]
        assert again.validated == [one for one in whole.validated if one[0] > step]
        for later in range(step + 1, max(steps) + 1):
            mine, theirs = content(folder, later), content(tmp_path / "whole", later)
            assert place(mine) == place(theirs), (step, later)
            for part in ("state_dict", "optimizer_states", "callbacks", "kept"):
                assert mine[part] == theirs[part], (step, later, part)


def as_before(checkpoint, together):
    """Turn a checkpoint into one of an earlier version, whose loader had single batches."""
    counters = checkpoint["loops"]["fit_loop"]
    own = counters["epoch_loop.manual_optimization.optim_step_progress"]
    steps = counters["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
    batches = counters["epoch_loop.batch_progress"]
    for part in ("total", "current"):
        steps[part], own[part] = dict(own[part]), dict.fromkeys(own[part], 0)
        more = batches[part]["ready"] * (together - 1)
        batches[part] = {name: count + more for name, count in batches[part].items()}
    checkpoint["accumulated"] = together


@pytest.mark.parametrize("together", [1, 2])
def test_a_run_of_an_earlier_version_goes_on_and_again(tmp_path, together):
    options = {"max_epochs": 3, "accumulate_grad_batches": together}
    options |= {"val_check_interval": 2, "check_val_every_n_epoch": None}
    whole = train(tmp_path / "whole", **options)
    for step in (1, 2, 3, BATCHES // together):
        earlier = content(tmp_path / "whole", step)
        as_before(earlier, together)
        torch.save(earlier, tmp_path / "earlier.ckpt")
        first, second = tmp_path / f"{step} first", tmp_path / f"{step} second"
        train(first, tmp_path / "earlier.ckpt", **options)
        again = train(second, of_step(first, step + 1), **options)
        assert again.seen == whole.seen[(step + 1) * together :]
        assert again.validated == [one for one in whole.validated if one[0] > step + 1]
        last = 3 * BATCHES // together
        for folder in (first, second):
            mine, theirs = content(folder, last), content(tmp_path / "whole", last)
            assert place(mine) == place(theirs)
            for part in ("state_dict", "optimizer_states", "kept"):
                assert mine[part] == theirs[part], (step, folder, part)


def test_a_run_may_be_resumed_again_and_again(tmp_path):
    whole = train(tmp_path, max_epochs=3)
    seen, checkpoint = [], None
    for number, end in enumerate((2, 5, BATCHES, BATCHES + 1, 3 * BATCHES)):
        part = train(tmp_path / str(number), checkpoint, max_steps=end, max_epochs=3)
        checkpoint, seen = newest_whole(tmp_path / str(number)), seen + part.seen
    assert seen == whole.seen


def sent(number):
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code", "where"),
    [
        (signal.SIGTERM, 143, 2),
        (signal.SIGTERM, 143, BATCHES - 1),
        (signal.SIGTERM, 143, f"validation {BATCHES}.1"),
        (signal.SIGINT, 130, f"validation {BATCHES}.1"),
        (signal.SIGUSR1, 143, 2),
        (signal.SIGHUP, 143, 2),
    ],
)
def test_a_signal_ends_a_run_after_the_step_and_saves_it(tmp_path, where, number, code):
    before = signal.getsignal(number)
    stop = {"max_epochs": 2}
    whole = train(tmp_path / "whole", every=None, **stop)
    with pytest.raises(Stopped) as ended:
        train(tmp_path / "a", at={where: sent(number)}, every=None, **stop)
    assert ended.value.code == code
    assert signal.getsignal(number) is before
    [saved] = checkpoints(tmp_path / "a")
    step = int(saved.stem.split("-")[1])
    assert step == (BATCHES if isinstance(where, str) else where + 1)

    rest = train(tmp_path / "b", saved, every=None, **stop)
    assert rest.seen == whole.seen[step:]
    assert rest.validated == whole.validated  # the one that was cut is made
    last = 2 * BATCHES
    assert content(tmp_path / "b", last)["kept"] == content(tmp_path / "whole", last)["kept"]


class Logged(Logger):
    """Keeps what is logged, by step, the last of a step and a name."""

    name, version = "rows", 0

    def __init__(self):
        super().__init__()
        self.rows = {}

    def log_hyperparams(self, params):
        pass

    def log_metrics(self, metrics, step):
        self.rows |= {(step, name): value for name, value in metrics.items()}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "stop",
    [
        {"max_epochs": 4},
        BY_STEPS | {"val_check_interval": 4, "check_val_every_n_epoch": None},
        {"max_epochs": 4, "accumulate_grad_batches": 2, "val_check_interval": 0.5},
        {"max_epochs": 3, "accumulate_grad_batches": 4, "limit_train_batches": 1},
        {"max_epochs": 5, "check_val_every_n_epoch": 2},
        BY_STEPS | {"limit_val_batches": 0},
    ],
    ids=["epochs", "steps", "half windows", "odd windows", "every second", "never"],
)
def test_a_run_that_is_stopped_again_and_again_is_the_uninterrupted_one(tmp_path, stop, seed):
    """In batches that are accumulated, in validations, twice in one, and by an end that is moved
    on; what it logs has the steps of the uninterrupted run."""
    chance, logged = random.Random(seed), [Logged(), Logged()]
    watched = {"log_every_n_steps": 2, "callbacks": [LAST]}
    whole = train(tmp_path / "whole", every=None, logger=[logged[0]], **watched, **stop)
    last = whole.trainer.global_step
    seen, validated, saved, moved = [], [], None, set()
    for _ in range(20):
        at, end = {}, {}
        kind = chance.choice(["step", "validation", "batch", "moved", "whole"])
        if kind == "step":
            at = {chance.randrange(last): sent(signal.SIGTERM)}
        elif kind == "validation":
            some = [f"validation {step}.{chance.randrange(6)}" for step in range(last)]
            at = dict.fromkeys(chance.sample(some, last // 2), sent(signal.SIGTERM))
        elif kind == "batch":
            name = f"batch {chance.randrange(3)}.{chance.randrange(BATCHES)}"
            at = {name: sent(signal.SIGTERM)}
        elif kind == "moved":
            end = {"max_steps": chance.randrange(1, last)}
            moved.add(end["max_steps"])
        with suppress(Stopped):
            options = {**stop, **watched, **end}
            part = Watcher(at)
            train(
                tmp_path, saved, part, every=chance.choice([None, 3]), logger=[logged[1]], **options
            )
        seen, validated = seen + part.seen, validated + part.validated
        saved = newest_whole(tmp_path)
        if part.trainer.global_step == last and not at:
            break
    assert seen == whole.seen
    assert torch.equal(part.weight, whole.weight)

    def kept(rows):  # an end is validated and logged, wherever it is
        return {key: value for key, value in rows.items() if key[0] + 1 not in moved}

    assert kept(logged[0].rows) == kept(logged[1].rows)
    found = [[one for one in all_ if one[0] not in moved] for all_ in (validated, whole.validated)]
    assert found[0] == found[1]


def test_a_hangup_that_is_ignored_as_under_nohup_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(tmp_path, at={1: sent(signal.SIGHUP)}, max_epochs=1)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert checkpoints(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_of_a_job_saves_the_step(tmp_path, number):
    def sent_to_all():
        del at[1]
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, number)
        time.sleep(0.1)  # in which one that dies would be missed
        os.kill(os.getpid(), number)

    at = {1: sent_to_all}
    options = {"max_epochs": 2, "accumulate_grad_batches": 2, "every": None, "workers": 2}
    with pytest.raises(Stopped):
        train(tmp_path, at=at, **options)
    [saved] = checkpoints(tmp_path)
    assert saved.name.startswith("step-000002-")


def test_a_signal_in_a_validation_of_a_moving_average_takes_it_for_no_weights(tmp_path):
    def averaged(name, *begin, **options):
        average = MovingAverage(decay=0.5)
        train(tmp_path / name, *begin, every=None, callbacks=[average], max_epochs=2, **options)

    averaged("whole")
    with pytest.raises(Stopped):
        averaged("cut", at={f"validation {BATCHES}.1": sent(signal.SIGTERM)})
    averaged("rest", newest_whole(tmp_path / "cut"))
    mine, theirs = (content(tmp_path / name, 2 * BATCHES) for name in ("rest", "whole"))
    for part in ("state_dict", "current_model_state", "optimizer_states"):
        assert mine[part] == theirs[part]


@pytest.mark.parametrize("keeping", [BEST, ("step", "max", 2)])
def test_the_last_two_stay_and_the_weights_that_they_list(tmp_path, keeping):
    seen = []

    class Counted(CheckpointFiles):
        def _sweep(self):
            super()._sweep()
            steps = [int(path.stem.split("-")[1]) for path in checkpoints(tmp_path)]
            kept = sorted(int(p.stem.split("-")[1]) for p in tmp_path.glob("weights-*"))
            listed = {step for one in steps for step in content(tmp_path, one)["kept"]}
            seen.append(steps)
            assert kept == sorted(listed)

    (tmp_path / "weights-000099-12345678.ckpt").write_bytes(b"of a step that was not reached")
    (tmp_path / ".step-000099.ckpt.1234").write_bytes(b"half written")
    train(tmp_path, files=Counted, every=4, keeping=keeping, max_epochs=3)
    assert seen[-1] == [3 * BATCHES, 16]
    assert {len(steps) for steps in seen[1:]} == {2}
    assert not list(tmp_path.glob(".*"))
    for step in content(tmp_path, 3 * BATCHES)["kept"]:
        found = torch.load(weights(tmp_path, step), weights_only=True)
        assert found["state_dict"].keys() == {"weight"}


def test_a_validation_that_is_no_number_is_the_worst_whenever_it_came(tmp_path):
    class Unsure(Watcher):
        def on_validation_epoch_end(self):
            self.log("val/loss", math.nan if self.global_step == BATCHES else 1.0)

    train(tmp_path, at=Unsure(), keeping=("val/loss", "min", 1), max_epochs=3)
    assert content(tmp_path, BATCHES)["kept"] == [BATCHES]
    assert content(tmp_path, 3 * BATCHES)["kept"] == [2 * BATCHES]


def cut(path, share):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def flipped(path, at):
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(content)


DAMAGES = [(cut, 0.0), (cut, 0.3), (cut, 0.9), (flipped, 0.0), (flipped, 0.5)]


@pytest.mark.parametrize(("damage", "share"), DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_in_a_line(tmp_path, capsys, damage, share):
    whole = train(tmp_path, files=CheckpointFiles, max_epochs=2)
    newest, older = checkpoints(tmp_path)
    damage(newest, share)
    assert newest_whole(tmp_path) == older
    assert capsys.readouterr().err == f"{newest} is damaged; resuming from {older.name}\n"
    assert train(tmp_path, older, files=CheckpointFiles, max_epochs=2).seen == whole.seen[-1:]
    assert checkpoints(tmp_path)[0] != newest or newest_whole(tmp_path) == newest

    damage(checkpoints(tmp_path)[0], share)
    damage(older, share)
    with pytest.raises(UserError, match=r"all checkpoints in .* are damaged"):
        newest_whole(tmp_path)


def test_a_full_disk_leaves_the_checkpoints_that_are_there(tmp_path, monkeypatch):
    train(tmp_path, files=CheckpointFiles, max_steps=3)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device"):
        train(tmp_path, newest_whole(tmp_path), files=CheckpointFiles, max_epochs=2)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_minutes_make_a_checkpoint_due(tmp_path, monkeypatch):
    clock = iter(range(0, 10**6, 25))
    monkeypatch.setattr("seqattn.training.checkpoints.time.monotonic", lambda: next(clock))
    train(tmp_path, every=None, minutes=1, max_steps=BATCHES + 5)
    assert len(checkpoints(tmp_path)) > 3


def test_epochs_and_steps_name_different_draws():
    names = [
        (1, epoch, step, number) for epoch in range(9) for step in range(9) for number in (0, 1)
    ]
    assert len({draw_seed(*one) for one in names}) == len(names)
    assert draw_seed(1, 2) == draw_seed(1, 2) < 2**63


def test_a_checkpoint_with_other_counters_is_refused_with_what_takes_its_weights(tmp_path):
    path = tmp_path / "run" / "checkpoints" / "step-000002-12345678.ckpt"
    path.parent.mkdir(parents=True)
    torch.save({"step_batches": 2, "place": [2, 0, 2, True]}, path)
    with pytest.raises(UserError, match=r"another version of .* with init_from=.*run/model$"):
        step_batches(path)
