"""Parts of a model that are frozen, for some steps or for all, and rates of their own."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from seqattn.errors import UserError
from seqattn.training.adamw_8bit import adamw_8bit
from seqattn.training.checkpoint_files import read, weights
from seqattn.training.muon import muon
from seqattn.training.optim import adamw
from seqattn.training.parameter_groups import ParameterGroups, regrouped
from seqattn.training.schedules import constant
from seqattn.training.sharding import FullySharded
from seqattn.training.tasks.seq2seq import Optimization, Seq2SeqTask
from tests.builders import make_transformer
from tests.cli.small import (
    checkpoint,
    logged,
    refusal,
    run,
    train,
    train_arguments,
    write_questions,
)
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import make_recurrent
from tests.training.tasks.test_effective_batch import batch_of, fit, rows
from tests.training.test_muon import gradients

TABLES = {"source_embedding.table.weight", "target_embedding.table.weight"}
TIED = TABLES | {"head.linear.weight"}
OPTIMIZERS = {
    "adamw": partial(adamw, lr=0.01, weight_decay=0.3),
    "adamw_8bit": partial(adamw_8bit, lr=0.01, weight_decay=0.3),
    "muon": partial(muon, lr=0.01, weight_decay=0.3),
}


def frozen_names(model, *patterns):
    ids = {id(weight) for weight in ParameterGroups(patterns).frozen(model)}
    named = model.named_parameters(remove_duplicate=False)
    return {name for name, weight in named if id(weight) in ids}


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("encoder", lambda name: name.startswith("encoder.")),
        ("encoder.layers.1", lambda name: name.startswith("encoder.layers.1.")),
        ("encoder.layers.1-9", lambda name: name.startswith("encoder.layers.1.")),
        ("decoder.layers.0-1", lambda name: name.startswith("decoder.layers.")),
        ("*.0-1.cross_attention.*.bias", lambda name: ".cross_" in name and "bias" in name),
        ("*.bias", lambda name: name.endswith(".bias")),
        ("norms", lambda name: "norm." in name),
        ("head.linear.weight", TIED.__contains__),
        ("embeddings", TIED.__contains__),
    ],
)
def test_a_pattern_names_parameters_and_a_shared_one_by_any_of_its_names(pattern, chosen):
    model = make_transformer()
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert frozen_names(model, pattern) == {name for name in names if chosen(name)} != set()


def test_a_recurrent_model_has_parts():
    assert frozen_names(make_recurrent(), "encoder.ahead.0")


def test_patterns_that_match_nothing_or_everything_are_refused():
    model = make_transformer()
    for parts, text in (
        (
            ParameterGroups(["encoder.layer.1"]),
            "freeze: encoder.layer.1 matches no parameter; use a name such as encoder.layers.1, "
            "encoder.layers.0, decoder.layers.1",
        ),
        (
            ParameterGroups(["quux"]),
            "freeze: quux matches no parameter; use a name such as embeddings, norms, encoder, "
            "decoder, source_embedding, target_embedding, head",
        ),
        (
            ParameterGroups(["encoder.layers.1-0"]),
            "freeze: encoder.layers.1-0 matches no parameter; use a name such as encoder.layers.1, "
            "encoder.layers.0, decoder.layers.1",
        ),
        (ParameterGroups(["*"]), "freeze leaves no parameter to train; name fewer parts"),
        (
            ParameterGroups(["encoder", "decoder", "head"]),
            "freeze leaves no parameter to train; name fewer parts",
        ),
    ):
        with pytest.raises(UserError) as error:
            parts.frozen(model)
        assert str(error.value) == text
    with pytest.raises(UserError, match=r"^lr_factors: heads matches no parameter; use a name"):
        ParameterGroups(lr_factors={"heads": 0.5}).split(model, adamw(model, 0.1))


def test_values_that_cannot_be_are_refused():
    for factors in (*({"encoder": x} for x in (0, -1.0, "a", float("nan"), True, 2_000)), ["a"]):
        text = r"^lr_factors must be numbers above 0 and of at most 1,000 by part, such as {enc"
        with pytest.raises(UserError, match=text):
            ParameterGroups(lr_factors=factors)
    with pytest.raises(UserError, match=r"^freeze_steps needs parts to freeze; add freeze="):
        ParameterGroups(freeze_steps=3)


def test_the_report_has_the_share_that_trains_and_shared_tables():
    model = make_transformer()
    size = sum(weight.numel() for weight in model.parameters())
    table = model.head.linear.weight.numel()
    share = f"{size - table:,} of {size:,} parameters ({100 - 100 * table / size:.1f} %)"
    groups = ParameterGroups(["source_embedding"], 1000, {"encoder": 0.5, "norms": 2})
    assert groups.notices(model) == [
        f"training {share} until step 1,000; frozen: source_embedding; shared with these "
        "and frozen, too: target_embedding.table.weight, head.linear.weight",
        "optimizer.lr times 0.5 for encoder, 2 for norms",
    ]
    [line] = ParameterGroups(["encoder.layers.0"]).notices(model)
    assert line.endswith("%); frozen: encoder.layers.0")
    assert ParameterGroups().notices(model) == []


def trained(optimizer, parts, steps=3, make=make_transformer, **options):
    """A task after steps of one batch each, and its model before them."""
    model = make().train()
    before = copy.deepcopy(model)
    task = Seq2SeqTask(model, Optimization(optimizer, constant(0), parameter_groups=parts))
    return fit(task, [rows(2, seed) for seed in range(steps)], **options), before


def by_hand(model, steps, frozen=(), until=None, factors=lambda name: 1.0):
    """AdamW on the weights that train, each in a group of its own."""
    named = dict(model.named_parameters())
    groups = [
        {
            "params": [weight],
            "lr": 0.01 * factors(name),
            "weight_decay": 0.3 if weight.dim() > 1 and name not in TIED else 0.0,
        }
        for name, weight in named.items()
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9)
    for step in range(steps):
        batch = batch_of(*rows(2, step))
        optimizer.zero_grad()
        logits = model(batch.source, batch.target_input)
        F.cross_entropy(
            logits.flatten(0, 1), batch.target_output.flatten(), ignore_index=0
        ).backward()
        for name in frozen if until is None or step < until else ():
            named[name].grad = None
        optimizer.step()
    return named


def double(**options):
    return make_transformer(**options).double()


@pytest.mark.parametrize("until", [None, 2])
@pytest.mark.parametrize("options", [{}, {"checkpoint_activations": True}])
def test_the_rest_trains_as_by_hand_and_what_is_frozen_stays(until, options):
    patterns = ["embeddings", "encoder.layers.0", "norms"]
    make = partial(double, **options)
    task, before = trained(OPTIMIZERS["adamw"], ParameterGroups(patterns, until), 4, make)
    frozen = frozen_names(before, *patterns)
    wanted = by_hand(
        copy.deepcopy(before), 4, frozen & {n for n, _ in before.named_parameters()}, until
    )
    old = dict(before.named_parameters())
    for name, weight in task.model.named_parameters():
        torch.testing.assert_close(weight, wanted[name], atol=1e-9, rtol=1e-9, msg=name)
        assert torch.equal(weight, old[name]) == (name in frozen and until is None), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_frozen_has_no_gradient_no_moments_and_no_decay(name):
    if name == "adamw_8bit":
        pytest.importorskip("bitsandbytes")
    task, before = trained(OPTIMIZERS[name], ParameterGroups(["embeddings", "encoder"]))
    frozen = frozen_names(before, "embeddings", "encoder")
    [optimizer] = task.trainer.optimizers
    for part, weight in before.named_parameters():
        new = task.model.get_parameter(part)
        assert torch.equal(new, weight) == (part in frozen), part
        assert (new in optimizer.state) == new.requires_grad == (part not in frozen), part
        assert new.grad is None or part not in frozen


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_factor_for_all_parts_is_another_rate(name):
    if name == "adamw_8bit":
        pytest.importorskip("bitsandbytes")
    make = OPTIMIZERS[name]
    ours, _ = trained(make, ParameterGroups(lr_factors={"encoder": 2.0, "*": 0.5, "decoder": 0.5}))
    theirs, _ = trained(partial(make, lr=0.005), ParameterGroups())
    for part, weight in ours.model.named_parameters():
        assert torch.equal(weight, theirs.model.get_parameter(part)), part


def test_parts_have_rates_of_their_own():
    parts = ParameterGroups(lr_factors={"encoder": 0.5, "encoder.layers.1": 2, "embeddings": 0.1})

    def factor(name):
        if name in TIED:
            return 0.1
        return 2 if ".layers.1." in name and "encoder" in name else 0.5 if "encoder" in name else 1

    task, before = trained(OPTIMIZERS["adamw"], parts, make=double)
    wanted = by_hand(before, 3, factors=factor)
    for name, weight in task.model.named_parameters():
        torch.testing.assert_close(weight, wanted[name], atol=1e-9, rtol=1e-9, msg=name)


def test_a_state_goes_on_in_other_groups():
    model = make_transformer()
    optimizers = []
    for factors in ({"encoder": 0.5}, {"embeddings": 0.1, "*.bias": 2}, {}):
        optimizers.append(adamw(model, 0.01))
        ParameterGroups(lr_factors=factors).split(model, optimizers[-1])
    first, *others = optimizers
    gradients(model, seed=0)
    first.step()
    state = first.state_dict()
    for other in others:
        state = regrouped(state, model, other)
        other.load_state_dict(copy.deepcopy(state))
        for weight in model.parameters():
            assert torch.equal(other.state[weight]["exp_avg"], first.state[weight]["exp_avg"])


def _ranks(rank, port, strategy, until, end):
    join(rank, port, 2)
    parts = ParameterGroups(["embeddings", "encoder.layers.0"], until, {"decoder": 0.5})
    model = double().train()
    task = Seq2SeqTask(
        model, Optimization(OPTIMIZERS["adamw"], constant(0), parameter_groups=parts)
    )
    several = [rows(1 + rank, 10 * step + rank) for step in range(3)]
    strategy = FullySharded(2) if strategy == "fsdp2" else strategy
    fit(task, several, devices=2, strategy=strategy).trainer.save_checkpoint(end)


@pytest.mark.parametrize("until", [None, 2])
def test_ranks_train_what_one_process_trains(tmp_path, until):
    parts = ParameterGroups(["embeddings", "encoder.layers.0"], until, {"decoder": 0.5})
    task = Seq2SeqTask(
        double().train(), Optimization(OPTIMIZERS["adamw"], constant(0), parameter_groups=parts)
    )
    several = [rows(1 + rank, 10 * step + rank) for step in range(3) for rank in (0, 1)]
    wanted = fit(task, several, accumulate_grad_batches=2).state_dict()
    for strategy in ("ddp", "fsdp2"):
        run_ranks(_ranks, 2, strategy, until, tmp_path / strategy)
        state = torch.load(tmp_path / strategy, weights_only=True)["state_dict"]
        for name, weight in wanted.items():
            torch.testing.assert_close(state[name], weight, atol=1e-9, rtol=1e-9, msg=name)


def words_of(corpus, run_dir, *words, steps=4):
    return train_arguments(corpus, f"run_dir={run_dir}", "task.final=null", *words, steps=steps)


def test_a_command_tells_what_trains_and_logs_each_rate(capfd, corpus, tmp_path):
    words = ("freeze=[embeddings]", "freeze_steps=2", "trainer.log_every_n_steps=1")
    factors = "lr_factors={encoder.layers.0-3:0.5,*.bias:2}"
    ended = run(capfd, "train", *words_of(corpus, tmp_path, *words, factors))
    assert ended.code == 0, ended.err
    lines = ended.err.splitlines()
    [number] = [n for n, line in enumerate(lines) if " until step 2; frozen: embeddings" in line]
    assert " parameters on 1 x CPU: " in lines[number - 1]
    assert lines[number + 1] == "optimizer.lr times 0.5 for encoder.layers.0-3, 2 for *.bias"
    for row in logged(tmp_path):
        if row["train/lr"]:
            rate = pytest.approx(float(row["train/lr"]))
            assert float(row["train/lr/encoder.layers.0-3"]) / 0.5 == rate
            assert float(row["train/lr/_.bias"]) / 2 == rate


def test_another_freezing_is_another_run_but_may_resume_it(capfd, corpus, tmp_path):
    words = words_of(corpus, tmp_path, "freeze=[embeddings]", "lr_factors={encoder:0.5}")
    train(words)
    first = load_file(tmp_path / "model" / "model.safetensors")
    others = [word for word in words if "freeze" not in word and "lr_factors" not in word]
    text = refusal(capfd, "train", *others, "freeze=[head]", "lr_factors={decoder:0.5}")
    assert text == (
        f"run_dir={tmp_path} holds a run with freeze=[embeddings] lr_factors={{encoder:0.5}}, but "
        "this command has freeze=[head] lr_factors={decoder:0.5}; use the same settings, add "
        f"resume={tmp_path} to change them, or choose another directory"
    )
    new = ("freeze=[encoder]", "lr_factors={decoder:0.5}", "trainer.max_steps=6")
    train([f"resume={tmp_path}", *new])
    last = load_file(tmp_path / "model" / "model.safetensors")
    for name, weight in last.items():
        assert torch.equal(weight, first[name]) == name.startswith("encoder."), name
    [state] = checkpoint(tmp_path)["optimizer_states"]
    steps = sorted({int(moments["step"]) for moments in state["state"].values()})
    assert steps == [2, 6]  # the table's moments are new, the encoder's are gone


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (("model=rnn", "attention=bahdanau", "optimizer=muon"), "encoder"),
        (("task=qa", "model=span_rnn"), "embedding"),
        (("callbacks=[ema]", "optimizer.weight_decay=0.5"), "decoder"),
    ],
)
def test_frozen_parts_of_any_model_stay_as_they_are(corpus, tmp_path, words, pattern):
    if "task=qa" in words:
        words += ("data=squad", f"data.root={write_questions(tmp_path / 'data')}", "model.dim=12")
        words += ("loader.window=64", "loader.stride=32", "loader.max_tokens=200", "trainer=cpu")
        words += (f"cache_dir={tmp_path / 'cache'}", "trainer.max_epochs=-1", "task.final=null")
        words += ("trainer.max_steps=4", "trainer.val_check_interval=2", f"run_dir={tmp_path}/run")
    else:
        words = words_of(corpus, tmp_path / "run", *words)
        words = [word for word in words if "ffn_dim" not in word or "model=rnn" not in words]
    train([*words, f"freeze=[{pattern}]", "checkpoint.average=last", "checkpoint.count=2"])
    folder = tmp_path / "run" / "checkpoints"
    one, other = (read(weights(folder, step))["state_dict"] for step in (2, 4))
    bundle = load_file(tmp_path / "run" / "model" / "model.safetensors")  # their average
    for name, weight in bundle.items():
        part, before = f"{pattern}.", one[f"model.{name}"]
        assert torch.equal(other[f"model.{name}"], before) == name.startswith(part), name
        assert torch.equal(weight, before) or not name.startswith(part), name
    assert any(name.startswith(f"{pattern}.") for name in bundle)
