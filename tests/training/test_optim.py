"""AdamW: which weights decay, and by how much."""

import operator
from functools import partial

import pytest
import torch

from seqattn.positions import DeBERTaPosition, ShawPosition
from seqattn.training.muon import muon
from seqattn.training.optim import adamw, apply_settings, settings_of, table_ids
from tests.builders import POSITIONS, load_choice, make_transformer, random_ids, targets


def group_of(optimizer, parameter):
    found = [
        group
        for group in optimizer.param_groups
        if any(parameter is other for other in group["params"])
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("sharing", ["all", "target", "none"])
def test_matrices_decay_and_embeddings_norms_biases_and_positions_do_not(sharing):
    model = make_transformer(position=POSITIONS["learned"], share_embeddings=sharing)
    optimizer = adamw(model, lr=0.1, weight_decay=0.3)
    tables = {id(model.source_embedding.table.weight), id(model.target_embedding.table.weight)}
    for name, parameter in model.named_parameters():
        still = (
            parameter.dim() < 2 or id(parameter) in tables or "position" in name or "table" in name
        )
        assert group_of(optimizer, parameter)["weight_decay"] == (0.0 if still else 0.3), name
    assert group_of(optimizer, model.head.linear.weight)["weight_decay"] == (
        0.3 if sharing == "none" else 0.0
    )


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (partial(ShawPosition, values=True), {"keys", "values"}),
        (DeBERTaPosition, {"table"}),
    ],
)
def test_vectors_of_distances_are_tables_and_projections_of_them_are_matrices(scheme, expected):
    model = make_transformer(position=scheme)
    tables = table_ids(model)
    found = {
        name.rpartition(".")[2]
        for name, weight in model.named_parameters()
        if "position" in name and id(weight) in tables
    }
    assert found == expected


@pytest.mark.parametrize("make", [adamw, muon])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("additive", {"v"}),
        ("differential", {"vectors"}),
        ("talking_heads", {"mix_scores", "mix_weights"}),
        ("linformer", set()),  # projections of the length
    ],
)
def test_what_a_kernel_declares_as_no_matrices_is_neither_decayed_nor_orthogonalized(
    name, expected, make
):
    model = make_transformer(load_choice("attention", name))
    optimizer = make(model, lr=0.1, weight_decay=0.3)
    found = {
        parameter.rpartition(".")[2]
        for parameter, weight in model.named_parameters()
        if ".kernel." in parameter and weight.dim() == 2
        if group_of(optimizer, weight)["weight_decay"] == 0
    }
    assert found == expected


def test_a_model_of_one_kind_of_weight_gets_one_group():
    assert len(adamw(torch.nn.Linear(3, 2, bias=False), lr=0.1).param_groups) == 1


@pytest.mark.parametrize("fused", [True, False])
def test_steps_are_those_of_torchs_adamw_on_the_same_groups(fused):
    ours, theirs = make_transformer().double(), make_transformer().double()
    mine = adamw(ours, 0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.3, fused=fused)
    tables = {id(theirs.source_embedding.table.weight)}
    matrices = [p for p in theirs.parameters() if p.dim() > 1 and id(p) not in tables]
    others = [p for p in theirs.parameters() if p.dim() == 1 or id(p) in tables]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}],
        lr=0.05, betas=(0.8, 0.9), eps=1e-7, fused=False, foreach=False,
    )  # fmt: skip
    for seed in range(3):
        for model, optimizer in ((ours, mine), (theirs, reference)):
            optimizer.zero_grad()
            logits = model(random_ids(2, 7, seed=seed), targets(2, 5, seed=seed + 9))
            logits.log_softmax(-1)[..., 4].sum().backward()
            optimizer.step()
    for (name, got), want in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, want, msg=name)


def test_a_resumed_optimizer_has_the_settings_of_this_run_and_the_rate_of_its_schedule():
    model = make_transformer()
    before, now = (adamw(model, lr=lr, weight_decay=lr) for lr in (0.5, 0.25))
    settings, weights = settings_of(now), [group["params"] for group in now.param_groups]
    now.load_state_dict(before.state_dict())
    assert apply_settings(settings, now, 0.125) == [0.25, 0.25]
    for group, decay, held in zip(now.param_groups, (0.25, 0.0), weights, strict=True):
        rates = (group["lr"], group["initial_lr"], group["weight_decay"])
        assert rates == (0.25 * 0.125, 0.25, decay)
        assert all(map(operator.is_, group["params"], held))
