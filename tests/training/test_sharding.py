"""Ranks that share out weights, gradients and moments train what one rank trains."""

import itertools
from functools import partial

import pytest
import torch
import torch.distributed as dist
from lightning import Callback
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from seqattn.attention.experts import auxiliary_losses
from seqattn.errors import UserError
from seqattn.generation import GreedySearch
from seqattn.generation.generator import Generator
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.lightning_trainer import made_trainer
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant
from seqattn.training.sharding import shard
from seqattn.training.tasks.seq2seq import Optimization, Seq2SeqTask
from seqattn.training.trainer_options import TrainerOptions
from tests.builders import (
    attention_variants,
    load_choice,
    load_variant,
    make_transformer,
    one_scheme,
    position_choices,
)
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import MODELS, make_recurrent
from tests.operations import operations
from tests.training.tasks.test_effective_batch import batch_of, rows

STEP_BATCHES = 6  # of an optimizer step, on all ranks together
KINDS = {
    "tied": make_transformer,
    "copying, recomputed": partial(make_transformer, copy=True, checkpoint_activations=True),
    "untied, norms after": partial(make_transformer, share_embeddings="none", pre_norm=False),
    "experts": lambda: make_transformer(load_variant("moa")),
    "shaw": lambda: make_transformer(position=load_choice("position", "shaw")),
    "recurrent": partial(make_recurrent, copy=True),
}


def all_kinds():
    yield from KINDS.items()
    for name in attention_variants():
        position = load_choice("position", one_scheme(name))
        yield name, partial(make_transformer, load_variant(name), position)
    for name in position_choices():
        yield name, partial(make_transformer, position=load_choice("position", name))
    for name, options in MODELS:
        yield f"{name} {options}", partial(make_recurrent, name, **options)


def batch(seed):
    """One to three pairs of ids."""
    return batch_of(*rows(1 + 2 * seed % 3, seed))


def loss_of(model, seed):
    one = batch(seed)
    torch.manual_seed(seed)  # an attention may draw noise
    with auxiliary_losses(model) as losses:
        total = model.loss(
            one.source, one.target_input, one.target_output, LossTerms(label_smoothing=0.1)
        ).smoothed
    return total + sum(part.loss for part in losses)


def gradients_in_shards(rank, port, kinds, loss_of):
    join(rank, port, 2)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for name, make in kinds:
        model = make().double().train()
        sum(loss_of(model, seed) for seed in (0, 1)).backward()
        wanted = {name: weight.grad for name, weight in model.named_parameters()}
        model.zero_grad()
        shard(model, mesh)
        for _ in range(2):  # each gathers anew
            model.zero_grad()
            loss_of(model, rank).backward()
        held = sum(weight.to_local().numel() for weight in model.parameters())
        assert held < 0.6 * sum(weight.numel() for weight in model.parameters()), name
        for part, weight in model.named_parameters():
            got = None if weight.grad is None else 2 * weight.grad.full_tensor()
            torch.testing.assert_close(got, wanted[part], atol=1e-10, rtol=1e-10, msg=name + part)
    dist.destroy_process_group()


def test_the_mean_gradient_of_two_ranks_in_shards_is_that_of_the_whole_model():
    run_ranks(gradients_in_shards, 2, list(KINDS.items()), loss_of)


def test_no_weight_is_a_scalar_which_cannot_be_shared_out():
    for name, make in all_kinds():
        assert all(weight.dim() for weight in make().parameters()), name


@pytest.mark.exhaustive
def test_it_is_so_of_every_kind_of_model():
    run_ranks(gradients_in_shards, 2, list(all_kinds()), loss_of)


def _gatherings(rank, port):
    join(rank, port, 2)
    dist.init_process_group("gloo")
    model = make_transformer().train()
    shard(model, init_device_mesh("cpu", (2,)))
    parts = sum(isinstance(part, FSDPModule) for part in model.modules())
    for _ in range(2):
        with operations() as names:
            loss = loss_of(model, rank)
        assert names["_allgather_base_"] == parts
        loss.backward()
    dist.destroy_process_group()


def test_each_part_is_gathered_once_in_a_forward_pass():
    run_ranks(_gatherings, 2)


class Searching(Seq2SeqTask):
    """Makes calls of its own on each rank while it validates."""

    def validation_step(self, one, number):
        super().validation_step(one, number)
        for _ in range(self.global_rank):
            Generator(self.model, GreedySearch()).generate(one.source.tolist())
            self.model.encode(one.source)


def task_of(model, eps=1e-9):
    optimizer = partial(adamw, lr=1e-2, weight_decay=0.1, eps=eps)
    return Searching(
        model, Optimization(optimizer, constant(0), terms=LossTerms(label_smoothing=0.1))
    )


class Failing(Callback):
    def on_validation_end(self, trainer, pl_module):
        raise UserError("diverged")


def _train(rank, port, make, strategy, world, steps, begin, end, precision, again):
    join(rank, port, world)
    options = TrainerOptions(
        accelerator="cpu",
        devices=world,
        strategy=strategy,
        precision=precision,
        max_steps=len(steps),
        val_check_interval=1,
        lightning={"enable_checkpointing": False},
    )
    own = [
        [batch(STEP_BATCHES * step + n) for n in range(rank, STEP_BATCHES, world)] for step in steps
    ]
    task = task_of(make())
    validated = [*itertools.chain(*own)][: 1 + rank]
    loaders = (DataLoader(own, batch_size=None), DataLoader(validated, batch_size=None))
    how = {"ckpt_path": begin, "weights_only": True}
    if again:
        with pytest.raises(UserError, match="diverged"):
            made_trainer(options, end.parent, [Failing()]).fit(task, *loaders, **how)
    trainer = made_trainer(options, end.parent)
    trainer.fit(task, *loaders, **how)
    trainer.save_checkpoint(end)


def trained(end, strategy, world, steps, begin=None, make=None, precision=32, again=False):
    """The checkpoint after these steps, with the weights and moments of another one before them."""
    make = make or (lambda: make_transformer(copy=True).double().train())
    if begin is not None:
        state = torch.load(begin, weights_only=True)
        del state["loops"]  # counters of another number of ranks
        begin = begin.with_suffix(".begin")
        torch.save(state, begin)
    run_ranks(_train, world, make, strategy, world, steps, begin, end, precision, again)
    return end


def difference(one, other):
    """The largest of any weight or moment of two checkpoints, which have the same names."""
    one, other = (torch.load(path, weights_only=True) for path in (one, other))
    states = [[state["state_dict"], *_moments(state)] for state in (one, other)]
    largest = 0.0
    for mine, theirs in zip(*states, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert not isinstance(value, DTensor)
            largest = max(largest, float((value.double() - theirs[name].double()).abs().max()))
    return largest


def _moments(checkpoint):
    for state in checkpoint["optimizer_states"]:
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        yield from (state["state"][number] for number in numbers)


@pytest.mark.exhaustive
def test_a_checkpoint_of_two_ranks_in_shards_goes_on_on_any_number_and_by_ddp(tmp_path):
    whole = trained(tmp_path / "whole", "auto", 1, range(4))
    for first, *others in (
        (("fsdp2", 2), ("auto", 1), ("ddp", 2), ("fsdp2", 3)),
        (("ddp", 2), ("fsdp2", 2)),
    ):
        half = trained(tmp_path / "half", *first, range(2))
        for other in others:
            end = trained(tmp_path / "end", *other, range(2, 4), half)
            assert difference(end, whole) < 1e-8


@pytest.mark.exhaustive
def test_mixed_precision_in_shards_is_that_of_ddp(tmp_path):
    options = {"make": lambda: make_transformer().train(), "precision": "bf16-mixed"}
    ddp, sharded = (
        trained(tmp_path / name, name, 2, range(1), **options) for name in ("ddp", "fsdp2")
    )
    assert difference(ddp, sharded) < 1e-6


@pytest.mark.exhaustive
def test_a_training_that_fails_in_a_validation_can_begin_once_more(tmp_path):
    half = trained(tmp_path / "half", "fsdp2", 2, range(2))
    once, twice = (
        trained(tmp_path / str(again), "fsdp2", 2, range(2, 4), half, again=again)
        for again in (False, True)
    )
    assert difference(once, twice) == 0
