"""However many ranks train, and wherever they are stopped, the model is the same."""

import math
import os
import signal

import pytest
import torch

from seqattn.cli.main import run_subcommand
from seqattn.training.tasks.base import SummedTask
from tests.cli.small import checkpoint, losses_of, place, train_arguments
from tests.forked_ranks import run_ranks

STEPS = 20
SAME = (
    "model.dropout=0.3", "loader.step_batches=4", "loader.max_tokens=100",
    "checkpoint.average=last", "task.final=null", "task.validation.every=0",
)  # fmt: skip
SHARDED = ("trainer=fsdp2", "trainer.accelerator=cpu")


def words_of(corpus, run_dir, *words, steps=STEPS):
    return train_arguments(corpus, *SAME, f"run_dir={run_dir}", *words, steps=steps, every=5)


def as_rank(rank, port, world, words, code=0):
    """Runs `train` as one of several that torchrun started."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    assert run_subcommand("train", [*words, f"trainer.devices={world}"]) == code


def train(world, words):
    if world == 1:
        assert run_subcommand("train", words) == 0
    else:
        run_ranks(as_rank, world, world, words)


def assert_near(one, other, within=1e-6):
    assert place(one) == place(other)
    for name, weight in one["state_dict"].items():
        if within and name.endswith("key.bias"):
            continue  # which has no gradient but noise, of which Adam makes steps
        assert (weight - other["state_dict"][name]).abs().max() <= within, name


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    train(1, words_of(corpus, run_dir))
    return checkpoint(run_dir)


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_several_ranks_train_the_model_that_one_trains(corpus, alone, tmp_path, world):
    train(world, words_of(corpus, tmp_path / "run"))
    assert_near(checkpoint(tmp_path / "run"), alone)


@pytest.mark.exhaustive
@pytest.mark.parametrize("worlds", [(2, 1), (2, 4, 1)], ids=str)
def test_a_run_goes_on_with_another_number_of_ranks(corpus, alone, tmp_path, worlds):
    ends = [*(7 * (number + 1) for number in range(len(worlds) - 1)), STEPS]
    train(worlds[0], words_of(corpus, tmp_path / "run", steps=ends[0]))
    for world, end in zip(worlds[1:], ends[1:], strict=True):
        train(world, [f"resume={tmp_path}/run", f"trainer.max_steps={end}"])
    assert_near(checkpoint(tmp_path / "run"), alone)


@pytest.mark.exhaustive
def test_ranks_in_shards_train_that_model_and_go_on_whole_and_in_shards_again(
    corpus, alone, tmp_path
):
    on = f"resume={tmp_path}/run"
    train(2, words_of(corpus, tmp_path / "run", *SHARDED, steps=7))
    train(1, [on, "trainer=cpu", "trainer.max_steps=14"])
    train(4, [on, *SHARDED, f"trainer.max_steps={STEPS}"])
    assert_near(checkpoint(tmp_path / "run"), alone)


def stopped_rank(rank, port, world, words, step, inside):
    """One rank of several is asked to end, within a step or the validation after it."""
    own = getattr(SummedTask, inside)

    def kill(task, batch, number):
        if task.global_step == step and rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return own(task, batch, number)

    setattr(SummedTask, inside, kill)
    as_rank(rank, port, world, words, code=143)


@pytest.mark.parametrize(
    ("world", "words"),
    [
        pytest.param(2, (), id="ddp"),
        pytest.param(4, (), marks=pytest.mark.exhaustive, id="ddp of four"),
        pytest.param(2, SHARDED, marks=pytest.mark.exhaustive, id="fsdp2"),
    ],
)
@pytest.mark.parametrize(
    ("inside", "step", "saved"),
    [("on_train_batch_start", 7, 8), ("validation_step", 10, 10)],
    ids=["in a step", "in a validation"],
)
def test_a_signal_to_one_rank_ends_all_and_the_run_goes_on_to_the_bit(
    corpus, tmp_path, world, words, inside, step, saved
):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(world, words_of(corpus, whole, *words))
    run_ranks(stopped_rank, world, world, words_of(corpus, stopped, *words), step, inside)
    last = checkpoint(stopped)
    assert last["global_step"] == saved
    assert last["validated"] == (inside != "validation_step")
    train(world, [f"resume={stopped}"])
    assert_near(checkpoint(stopped), checkpoint(whole), within=0)


@pytest.mark.exhaustive
def test_a_run_that_is_stopped_within_a_validation_goes_on_with_twice_the_ranks(
    corpus, alone, tmp_path
):
    words = words_of(corpus, tmp_path / "run")
    run_ranks(stopped_rank, 2, 2, words, 10, "validation_step")
    assert not checkpoint(tmp_path / "run")["validated"]
    train(4, [f"resume={tmp_path}/run"])
    assert_near(checkpoint(tmp_path / "run"), alone)
    assert sorted(losses_of(tmp_path / "run")) == [5, 10, 15, 20]


def spoiled_rank(rank, port, world, words):
    """One rank of several whose gradients are infinite in three steps of the second epoch."""
    clip = SummedTask._clip

    def spoil(task, *args, **options):
        if task.current_epoch == 1 and task.trainer.fit_loop.epoch_loop.batch_idx < 6:
            next(task.model.parameters()).grad[0] = math.inf
        return clip(task, *args, **options)

    SummedTask._clip = spoil
    as_rank(rank, port, world, words)


def test_ranks_go_back_together_past_batches_that_are_bad(corpus, tmp_path):
    """An epoch has four steps; of the second the first three are bad, and step 5 is saved."""
    run_ranks(spoiled_rank, 2, 2, words_of(corpus, tmp_path / "run", steps=8))
    assert place(checkpoint(tmp_path / "run")) == [8, 2, 2, True]
