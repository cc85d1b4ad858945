"""How a training ends: the last step, what is kept of it, its scores, and what is refused."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import seqattn
from seqattn.data import module
from seqattn.data.sources import ParallelText
from seqattn.errors import UserError
from seqattn.metrics.text import TextScorer
from seqattn.models.stack import compile_layers
from seqattn.training.finish import _final_scores
from seqattn.training.length_checks import ineffective_patterns
from seqattn.training.run import threads_of
from seqattn.training.setup import Setup
from seqattn.training.tasks.base import SummedTask
from seqattn.training.train import Training
from seqattn.training.trainer_options import TrainerOptions
from tests.builders import load_choice, make_attention
from tests.cli.small import (
    checked_training,
    checkpoint,
    logged,
    losses_of,
    place,
    refusal,
    run,
    succeed,
    train_arguments,
)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("task=translation", (1.5, 10)),
        ("task=summarization", (0.0, 64)),
        ("task=summarization generation=greedy", (0.0, 64)),
        ("task=summarization generation.limit.extra=30", (0.0, 30)),
        ("task=qa_generative", (0.0, 64)),
        ("experiment=aeslc_transformer data.root=.", (0.0, 30)),
    ],
)
def test_outputs_are_as_long_as_the_task_asks(words, limit):
    found = checked_training(*words.split()).generation.limit
    assert (found.ratio, found.extra) == limit


def test_a_compiled_training_compiles_layers(capfd, corpus, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # which the run sets, and keeps
    monkeypatch.setattr(TrainerOptions, "check_device", lambda self: None)
    monkeypatch.setattr(
        "seqattn.training.run.compile_layers",
        lambda model: seen.append(model) or compile_layers(model, backend="eager"),
    )
    words = ("trainer.max_steps=3", "model.dropout=0", "task.final=null")
    for compiled in ("false", "true"):
        arguments = train_arguments(corpus, *words, f"trainer.compile={compiled}")
        ended = run(capfd, "train", *arguments, f"run_dir={tmp_path}/{compiled}")
        assert ended.code == 0, ended.err
    (model,) = seen
    for stack in (model.encoder, model.decoder):
        assert stack.compiled.keys() == {*stack.layers, stack.norm}
    with pytest.raises(UserError, match=r"trainer\.compile=true needs a Transformer"):
        checked_training("model=rnn", "attention=bahdanau", "trainer.compile=true")
    assert losses_of(tmp_path / "true") == pytest.approx(losses_of(tmp_path / "false"), rel=1e-4)


def test_a_run_reads_tokenizes_and_builds_everything_once(capfd, corpus, tmp_path, monkeypatch):
    seen = []

    def count(owner, name, told):
        own = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, **more: seen.append(told(*args)) or own(*args, **more)
        )

    count(ParallelText, "load", lambda source, split, *rest: split)
    count(module, "tokenize", lambda *rest: "ids")
    count(Trainer, "__init__", lambda trainer: "trainer")
    count(Training, "__post_init__", lambda run: "settings")
    words = ("task.final.splits=[val,test]", f"run_dir={tmp_path}/run")
    once = ["ids", "ids", "settings", "test", "train", "trainer", "val"]
    for more in (words, (*words, f"resume={tmp_path}/run")):
        ended = run(
            capfd, "train", *train_arguments(corpus, *more, steps=3 if more == words else 5)
        )
        assert ended.code == 0, ended.err
        assert sorted(seen) == once
        seen.clear()


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("trainer.max_steps=5", "trainer.val_check_interval=2"), 5),
        (("trainer.max_steps=2", "trainer.val_check_interval=1.0"), 2),
        (("trainer.max_steps=-1", "trainer.max_epochs=1", "trainer.val_check_interval=4"), 6),
    ],
)
def test_the_last_step_is_validated_and_may_be_kept(capfd, corpus, tmp_path, words, last):
    """Of the six batches of an epoch; the run is so short that the last step is the best."""
    words += (f"run_dir={tmp_path}/run", "task.final=null", "task.validation.every=0")
    ended = run(capfd, "train", *train_arguments(corpus, *words))
    assert ended.code == 0, ended.err
    losses = losses_of(tmp_path / "run")
    assert max(losses) == last == min(losses, key=losses.get)
    assert f"step {last} (" in ended.out
    assert checkpoint(tmp_path / "run")["global_step"] == last
    scores = json.loads((tmp_path / "run" / "model" / "scores.json").read_text())
    assert scores["val/loss"] == pytest.approx(losses[last], rel=1e-5)
    assert "val/bleu" not in scores  # of task.final=null


def test_a_training_that_is_nan_is_refused_and_leaves_no_bundle(capfd, corpus, tmp_path):
    words = (
        "optimizer.lr=1000",
        "optimizer.weight_decay=1e9",
        "trainer.log_every_n_steps=1",
        f"run_dir={tmp_path}/run",
    )
    text = refusal(capfd, "train", *train_arguments(corpus, *words, steps=6))
    assert re.match(
        r"training has diverged: non-finite values at step \d; lower optimizer.lr", text
    )
    assert not (tmp_path / "run" / "model").exists()
    assert (tmp_path / "run" / "train.log").read_text().endswith(f"error: {text}\n")


def test_scoring_that_is_stopped_leaves_the_bundle(capfd, corpus, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Setup, "scores", stop)
    ended = run(capfd, "train", *train_arguments(corpus, f"run_dir={tmp_path}/run"))
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "stopped")
    assert len(seqattn.load(tmp_path / "run" / "model").generate(["a dog"])) == 1


def test_final_scores_are_of_the_asked_splits_and_sentences_and_reach_the_loggers(
    capfd, corpus, tmp_path, monkeypatch
):
    counts, own = [], TextScorer.score

    def score(scorer, hypotheses, *rest):
        counts.append(len(hypotheses))
        return own(scorer, hypotheses, *rest)

    monkeypatch.setattr(TextScorer, "score", score)
    words = ("task.final.splits=[val,test]", "task.final.sentences=3", "logger=[csv,tensorboard]")
    succeed(capfd, "train", *train_arguments(corpus, *words, f"run_dir={tmp_path}/run"))
    assert counts == [3, 3]
    scores = json.loads((tmp_path / "run" / "model" / "scores.json").read_text())
    assert {"val/bleu", "val/chrF", "test/bleu", "test/chrF"} <= scores.keys()
    *steps, final = logged(tmp_path / "run")
    assert float(final["final/test/chrF"]) == pytest.approx(scores["test/chrF"])
    assert all(row["val/chrF"] for row in steps if row["val/bleu"])
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "version_0")).Reload()
    tags = events.Tags()["scalars"]
    assert "final/test/bleu" in tags
    assert "hp_metric" not in tags
    plugins = events.SummaryMetadata("_hparams_/session_start_info").plugin_data
    session = HParamsPluginData.FromString(plugins.content).session_start_info
    assert session.hparams["parameters"].number_value > 1000


def test_validation_batches_without_a_sentence_to_score_give_their_loss(capfd, corpus, tmp_path):
    words = ("task.validation.sentences=1", "loader.max_tokens=50")
    succeed(capfd, "train", *train_arguments(corpus, *words, f"run_dir={tmp_path}/run"))
    assert any(row["val/chrF"] for row in logged(tmp_path / "run"))


def test_outputs_are_made_on_the_device_that_trained():
    """Lightning's trainer leaves the task on the CPU."""
    task = torch.nn.Linear(2, 3)
    task.loss_metric = SimpleNamespace(compute=lambda: {"loss": 1.0})
    setup = SimpleNamespace(
        run=SimpleNamespace(trainer=TrainerOptions(), seed=1),
        task=task,
        data=SimpleNamespace(loader=lambda name: []),
        model=task,
        final_scores=lambda: {"on": str(task.weight.device)},
    )
    assert _final_scores(setup, torch.device("meta")) == {"val/loss": 1.0, "on": "meta"}


def spoiled(monkeypatch, steps):
    """Makes the gradients of some steps infinite, by their place in the data."""
    clip = SummedTask._clip

    def spoil(task, *args, **options):
        if (task.current_epoch, task.trainer.fit_loop.epoch_loop.batch_idx) in steps:
            next(task.model.parameters()).grad[0] = math.inf
        return clip(task, *args, **options)

    monkeypatch.setattr(SummedTask, "_clip", spoil)


def test_a_step_whose_gradients_are_not_finite_moves_nothing(capfd, corpus, tmp_path, monkeypatch):
    spoiled(monkeypatch, {(0, 1)})
    words = (f"run_dir={tmp_path}/run", "task.final=null", "checkpoint.every_steps=1")
    seen = {}
    step = SummedTask.on_train_batch_start

    def note(task, batch, number):
        step(task, batch, number)
        seen[task.global_step] = [p.detach().clone() for p in task.model.parameters()]

    monkeypatch.setattr(SummedTask, "on_train_batch_start", note)
    ended = run(capfd, "train", *train_arguments(corpus, *words, steps=4, every=4))
    assert ended.code == 0, ended.err
    assert ended.err.count("skipped the update of step 2: non-finite gradients") == 1
    assert all(map(torch.equal, seen[1], seen[2]))
    assert not all(map(torch.equal, seen[2], seen[3]))


def test_three_such_steps_go_back_to_the_last_checkpoint_and_past_the_batches(
    capfd, corpus, tmp_path, monkeypatch
):
    """An epoch has six batches; the third to the fifth of the second are bad."""
    spoiled(monkeypatch, {(1, 2), (1, 3), (1, 4)})
    words = (f"run_dir={tmp_path}/run", "task.final=null")
    ended = run(capfd, "train", *train_arguments(corpus, *words, steps=12, every=6))
    assert ended.code == 0, ended.err
    assert "non-finite values at step 11" in ended.err
    assert "; resuming from step-000006-" in ended.err
    # after step 6 come the last batch of that epoch and five of the next
    assert place(checkpoint(tmp_path / "run")) == [12, 2, 5, True]


def test_a_run_that_diverges_twice_stops(capfd, corpus, tmp_path, monkeypatch):
    spoiled(monkeypatch, {(1, number) for number in range(6)} | {(2, n) for n in range(6)})
    words = (f"run_dir={tmp_path}/run", "task.final=null")
    ended = run(capfd, "train", *train_arguments(corpus, *words, steps=18, every=6))
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("error: training has diverged")
    assert place(checkpoint(tmp_path / "run")) == [6, 0, 6, True]
    assert not (tmp_path / "run" / "model").exists()


def test_settings_say_the_precision_and_how_many_ranks_were_started(monkeypatch):
    alone = checked_training("trainer=cpu").resolved()
    assert alone.settings["trainer"]["precision"] == alone.trainer.precision == 32
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    started = checked_training("trainer=cpu", "run_dir=x").resolved()
    assert started.settings["trainer"]["devices"] == started.trainer.devices == 2


@pytest.mark.parametrize(
    ("asked", "before", "given"), [(3, 2, 3), (None, 2, 2), (None, 8, 4), (None, None, 4)]
)
def test_a_training_has_the_threads_asked_for_or_those_that_it_began_with(asked, before, given):
    torch.set_num_threads(4)
    try:
        with threads_of(asked, before):
            assert torch.get_num_threads() == given
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(1)


def test_a_pattern_that_hides_nothing_in_these_texts_is_named():
    def told(lengths, *names):
        parts = torch.nn.ModuleList(make_attention(load_choice("attention", n)) for n in names)
        return ineffective_patterns(parts, max(lengths))

    [line] = told((31, 257), "mha", "sliding_window")
    assert line.startswith("SlidingWindowKernel of the 1 hides no token of a text of up to 257 tok")
    assert told((31, 258), "mha", "sliding_window") == []
    assert len(told((60, 60), "streaming", "sliding_window", "mha")) == 2
    assert len(told((9, 11), "luong_local_m", "luong_local_p")) == 1
    assert len(told((20, 20), "bigbird", "strided", "fixed", "lsh", "streaming", "linear")) == 5
