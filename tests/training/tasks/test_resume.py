"""The same seed gives the same run, and a resumed run is the uninterrupted one to the bit."""

import math

import pytest
import torch
from safetensors.torch import load_file

from seqattn.cli.main import run_subcommand
from seqattn.training.tasks.seq2seq import Seq2SeqTask
from tests.cli.small import (
    checkpoint,
    logged,
    losses_of,
    place,
    refusal,
    succeed,
    train,
    train_arguments,
    write_corpus,
    write_documents,
    write_questions,
)

BATCHES = 6  # of an epoch of the small corpus; the tests say so themselves
SHORT = ("loader.max_length=64", "loader.max_source_length=64")
ALWAYS = ("model.dropout=0.3", "checkpoint.average=last")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("resume") / "corpus")


@pytest.fixture(scope="module")
def uninterrupted(corpus):
    """Ten steps, validated at every second one: into the second epoch of six batches each."""
    return started(corpus, "uninterrupted", steps=10)


def started(corpus, name, *overrides, **times):
    run_dir = corpus.parent / name
    train(train_arguments(corpus, *ALWAYS, f"run_dir={run_dir}", *overrides, **times))
    return run_dir


def resumed(run_dir, *overrides):
    train([f"resume={run_dir}", *overrides])
    return run_dir


def assert_equal(one, other, where="checkpoint"):
    """Equality to the bit of whatever a checkpoint holds."""
    assert type(one) is type(other), where
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other)):
            assert_equal(*pair, f"{where}[{number}]")
    else:
        assert one == other, where


def assert_same_end(run_dir, other):
    """Weights, moments, schedule and place at the last step; the written bundle."""
    mine, theirs = checkpoint(run_dir), checkpoint(other)
    assert place(mine) == place(theirs)
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "kept"):
        assert_equal(mine[part], theirs[part], part)
    weights = [load_file(run / "model" / "model.safetensors") for run in (run_dir, other)]
    assert_equal(*weights, "bundle")


def test_the_runs_cross_an_epochs_end_and_their_weights_move(uninterrupted):
    last = checkpoint(uninterrupted)
    assert last["global_step"] == 10
    assert place(last) == [10, 10 // BATCHES, 10 - BATCHES, True]
    moments = last["optimizer_states"][0]["state"]
    assert all((state["exp_avg"] != 0).any() for state in moments.values())


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(corpus, uninterrupted):
    again = started(corpus, "again", steps=10)
    assert_same_end(again, uninterrupted)
    other = started(corpus, "other seed", "seed=2", steps=10)
    mine, theirs = (checkpoint(run)["state_dict"] for run in (other, uninterrupted))
    assert all(not torch.equal(mine[name], theirs[name]) for name in mine if "weight" in name)


@pytest.mark.parametrize("stop", [4, BATCHES], ids=lambda step: f"stopped at step {step}")
def test_a_resumed_run_is_the_uninterrupted_one(corpus, uninterrupted, stop):
    run_dir = started(corpus, f"stopped at {stop}", steps=stop)
    assert checkpoint(run_dir)["global_step"] == stop
    assert_same_end(resumed(run_dir, "trainer.max_steps=10"), uninterrupted)


@pytest.mark.parametrize(
    "words",
    [
        ("task=qa", "model=span_rnn", "data=squad", "loader.window=64", "loader.stride=32"),
        (
            "task=summarization",
            "model=rnn",
            "data=aeslc",
            "model.copy=true",
            "task.r_drop=2",
            *SHORT,
        ),
    ],
    ids=["spans", "copies"],
)
def test_runs_of_other_tasks_resume_to_the_bit(tmp_path, words):
    write = {"data=squad": write_questions, "data=aeslc": write_documents}[words[2]]
    common = [
        *words, f"data.root={write(tmp_path / 'data')}", f"cache_dir={tmp_path / 'cache'}",
        "model.dim=12", "model.dropout=0.3", "loader.max_tokens=200", "trainer=cpu",
        "trainer.val_check_interval=2", "trainer.max_epochs=-1", "checkpoint.average=last",
        "optimizer.lr=0.01", "schedule=constant", "schedule.warmup_steps=1",
    ]  # fmt: skip
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    train([*common, "trainer.max_steps=8", f"run_dir={whole}"])
    train([*common, "trainer.max_steps=4", f"run_dir={parted}"])
    assert checkpoint(whole)["epoch"] >= 1
    assert_same_end(resumed(parted, "trainer.max_steps=8"), whole)


def test_a_run_that_is_killed_between_validations_goes_on_from_the_last(
    corpus, uninterrupted, monkeypatch
):
    class Killed(Exception):
        pass

    begins = Seq2SeqTask.on_train_batch_start

    def killed(task, batch, batch_idx):
        if task.global_step == 7:
            raise Killed
        begins(task, batch, batch_idx)

    with monkeypatch.context() as patched:
        patched.setattr(Seq2SeqTask, "on_train_batch_start", killed)
        with pytest.raises(Killed):
            started(corpus, "killed", steps=10)
    run_dir = corpus.parent / "killed"
    assert checkpoint(run_dir)["global_step"] == 6
    assert not (run_dir / "model").exists()
    assert_same_end(resumed(run_dir), uninterrupted)


def test_epochs_resume_as_steps_do_and_so_do_accumulated_windows(corpus):
    by_epochs = (
        "trainer.max_steps=-1",
        "trainer.val_check_interval=1.0",
        "trainer.accumulate_grad_batches=4",
        "attention=gqa",
        "attention.dropout=0.2",
    )
    whole = started(corpus, "epochs", *by_epochs, "trainer.max_epochs=4")
    assert checkpoint(whole)["global_step"] == 4 * 2  # four batches, then the two that are left
    run_dir = started(corpus, "epochs stopped", *by_epochs, "trainer.max_epochs=2")
    assert_same_end(resumed(run_dir, "trainer.max_epochs=4"), whole)


@pytest.mark.parametrize(("stop", "workers"), [(4, 0), (BATCHES + 2, 1)])
def test_sampled_subwords_go_on_as_they_would_have(corpus, uninterrupted, stop, workers):
    """Stopped within the first or the second epoch, whose pieces are others."""
    sampled = ("loader.subword_sampling=0.3", f"loader.num_workers={workers}")
    whole = started(corpus, f"sampled {workers}", *sampled, steps=10)
    run_dir = started(corpus, f"sampled {workers} stopped", *sampled, steps=stop)
    assert_same_end(resumed(run_dir, "trainer.max_steps=10"), whole)
    mine, theirs = (checkpoint(run)["state_dict"] for run in (whole, uninterrupted))
    assert any(not torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_falling_schedule_goes_on_where_it_was(corpus):
    falling = (
        "schedule=cosine", "schedule.warmup_steps=2", "schedule.total_steps=8", "schedule.floor=0"
    )  # fmt: skip
    whole = started(corpus, "cosine", *falling, steps=6)
    run_dir = started(corpus, "cosine stopped", *falling, steps=4)
    assert_same_end(resumed(run_dir, "trainer.max_steps=6"), whole)
    wanted = 0.01 * (1 + math.cos(math.pi * 5 / 6)) / 2  # five of the six steps after warming up
    for group in checkpoint(run_dir)["optimizer_states"][0]["param_groups"]:
        assert group["lr"] == pytest.approx(wanted)


@pytest.mark.parametrize("stop", [2, 6], ids=lambda step: f"stopped at step {step}")
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.exhaustive)])
def test_a_run_that_thaws_goes_on_across_it_and_after_it(corpus, stop, optimizer):
    words = (
        f"optimizer={optimizer}", "freeze=[embeddings,encoder]", "freeze_steps=5",
        "lr_factors={encoder:0.5}", "callbacks=[ema]", "callbacks.ema.decay=0.5",
    )  # fmt: skip
    whole = corpus.parent / f"thawed {optimizer}"
    if not whole.exists():
        started(corpus, whole.name, *words, steps=8)
    moments = checkpoint(whole)["optimizer_states"][0]["state"].values()
    assert {int(one["step"]) for one in moments if "step" in one} == {8 - 5, 8}
    run_dir = started(corpus, f"thawed {optimizer} {stop}", *words, steps=stop)
    assert_same_end(resumed(run_dir, "trainer.max_steps=8"), whole)


def test_what_is_validated_and_how_often_moves_no_weight(corpus):
    runs = [
        started(corpus, f"validated {every} {sentences}", *more, steps=6, every=every)
        for every, sentences, more in ((2, 4, ()), (6, 4, ()), (3, 0, ("task.validation.every=0",)))
    ]
    for run_dir in runs[1:]:
        mine, theirs = checkpoint(run_dir), checkpoint(runs[0])
        for part in ("state_dict", "optimizer_states"):
            assert_equal(mine[part], theirs[part], part)


def test_patience_survives_a_resumption(corpus):
    """Weights that never move give a loss that never falls: the first validation, then three."""
    still = ("optimizer.lr=0", "checkpoint.patience=3")
    whole = started(corpus, "impatient", *still, steps=30)
    assert checkpoint(whole)["global_step"] == 2 * (1 + 3)
    run_dir = started(corpus, "impatient stopped", *still, steps=6)
    resumed(run_dir, "trainer.max_steps=30")
    assert checkpoint(run_dir)["global_step"] == 2 * (1 + 3)


def test_a_run_that_patience_ended_and_that_was_killed_then_trains_no_more(corpus, capfd):
    words = ("optimizer.lr=0", "checkpoint.patience=2")
    run_dir = started(corpus, "killed when impatient", *words, steps=30)
    (run_dir / "result.yaml").unlink()
    capfd.readouterr()
    resumed(run_dir)
    text = "early stopping: val/loss has not improved within checkpoint.patience=2; raise it"
    assert text in capfd.readouterr().err
    assert checkpoint(run_dir)["global_step"] == 2 * (1 + 2)
    resumed(run_dir, "checkpoint.patience=3")
    assert checkpoint(run_dir)["global_step"] == 2 * (1 + 3)


def test_a_run_goes_on_with_another_rate_and_decay_where_they_are_given(corpus):
    words = ("schedule=linear", "schedule.total_steps=10", "trainer.log_every_n_steps=1")
    run_dir = started(corpus, "other rate", *words, steps=4)
    resumed(run_dir, "trainer.max_steps=6", "optimizer.lr=0.02", "optimizer.weight_decay=0.5")
    rates = {int(row["step"]): float(row["train/lr"]) for row in logged(run_dir) if row["train/lr"]}
    share = {step: 0.01 + 0.99 * (1 - (step + 1 - 3) / (10 - 3)) for step in (3, 4, 5)}
    assert rates[3] == pytest.approx(0.01 * share[3])
    assert rates[4] == pytest.approx(0.02 * share[4])
    assert rates[5] == pytest.approx(0.02 * share[5])
    groups = checkpoint(run_dir)["optimizer_states"][0]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]


@pytest.mark.parametrize("words", [(), ("optimizer=muon",)])
def test_another_optimizer_is_refused_where_a_run_goes_on(corpus, capfd, words):
    run_dir = started(corpus, f"optimizer {len(words)}", *words, steps=2)
    names = ("muon", "adamw") if words else ("adamw", "muon")
    text = refusal(capfd, "train", f"resume={run_dir}", f"optimizer={names[1]}")
    assert text == (
        f"resume={run_dir} cannot change the optimizer: the run has optimizer={names[0]}, but this "
        f"command has optimizer={names[1]}; start a new run from its weights with "
        f"init_from={run_dir}/model"
    )


@pytest.mark.parametrize(
    ("word", "steps"),
    [
        ("loader.max_tokens=100", 13),
        ("loader.max_tokens=400", 4),
        ("trainer.accumulate_grad_batches=2", 3),
        ("loader.step_batches=3", 2),
    ],
)
def test_batches_may_be_others_from_one_epoch_to_the_next(corpus, word, steps):
    by_epochs = ("trainer.max_steps=-1", "trainer.val_check_interval=1.0")
    run_dir = started(
        corpus, f"epoch {word.partition('=')[0]} {steps}", *by_epochs, "trainer.max_epochs=1"
    )
    assert place(checkpoint(run_dir)) == [BATCHES, 0, BATCHES, True]
    resumed(run_dir, word, "trainer.max_epochs=2")
    assert place(checkpoint(run_dir)) == [BATCHES + steps, 1, steps, True]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("checkpoint.average=last",), ("checkpoint.average=best",)),
        (("checkpoint.monitor=val/accuracy",), ("checkpoint.monitor=val/loss",)),
    ],
)
def test_what_is_best_by_another_measure_is_found_among_new_validations(corpus, before, after):
    name = before[0].partition("=")[2].replace("/", " ")
    run_dir = corpus.parent / f"measured by {name}"
    for words, steps in ((before, 4), (after, 8)):
        train(train_arguments(corpus, *words, f"run_dir={run_dir}", steps=steps))
    last, losses = checkpoint(run_dir), losses_of(run_dir)
    best = min((6, 8), key=losses.__getitem__)
    assert last["kept"] == [best]
    assert last["callbacks"]["TrainingLoop"]["Monitored"]["best"] == pytest.approx(
        min(losses.values())
    )


def test_a_finished_run_that_is_resumed_without_more_to_do_keeps_its_weights(
    corpus, uninterrupted, capfd
):
    run_dir = started(corpus, "finished", steps=10)
    succeed(capfd, "train", f"resume={run_dir}")
    assert_same_end(run_dir, uninterrupted)


def test_only_a_run_can_be_resumed(tmp_path, capfd):
    assert refusal(capfd, "train", f"resume={tmp_path}/no") == (
        f"resume={tmp_path}/no is not a run: {tmp_path}/no/overrides.yaml does not exist"
    )
    (tmp_path / "overrides.yaml").write_text("[]\n")
    assert refusal(capfd, "train", f"resume={tmp_path}") == (
        f"resume={tmp_path} holds no checkpoints/step-*.ckpt to resume from"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["overrides.yaml"]


def test_a_resumption_mid_epoch_needs_the_same_batches(corpus, capfd):
    run_dir = started(corpus, "other batches", steps=4)
    before = sorted((run_dir / "checkpoints").iterdir())
    text = refusal(
        capfd, "train", f"resume={run_dir}", "trainer.max_steps=6", "loader.max_tokens=150"
    )
    assert text.startswith("cannot resume after step 4 of the epoch: the data, batch")
    assert sorted((run_dir / "checkpoints").iterdir()) == before
    assert run_subcommand("train", [f"resume={run_dir}", "trainer.max_steps=6"]) == 0
