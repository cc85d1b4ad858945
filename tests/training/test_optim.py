"""AdamW: which weights decay, and by how much."""

import copy
import operator
from functools import partial

import pytest
import torch

from seqattn.errors import UserError
from seqattn.positions import DeBERTaPosition, ShawPosition
from seqattn.training.muon import muon
from seqattn.training.optim import (
    adamw,
    apply_settings,
    settings_of,
    table_ids,
)
from seqattn.training.parameter_groups import ParameterGroups, regrouped
from tests.builders import (
    POSITIONS,
    VOCABULARY,
    attention_choices,
    load_choice,
    make_transformer,
    mixer_choices,
    random_ids,
    targets,
)
from tests.models.recurrents import ALIGNMENTS, make_recurrent
from tests.training.test_muon import gradients


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


MODELS = {name: partial(make_recurrent, name, order="after") for name in ALIGNMENTS}
for _name in attention_choices() + mixer_choices():
    MODELS[_name] = partial(make_transformer, load_choice("attention", _name))
MODELS |= {f"copying {name}": partial(MODELS[name], copy=True) for name in ("bahdanau", "mha")}


@pytest.mark.parametrize("name", MODELS)
def test_no_vector_table_of_coefficients_or_output_layer_is_orthogonalized_or_else_decayed(
    name, monkeypatch
):
    for builders in ("tests.builders", "tests.models.recurrents"):  # weights as training begins
        monkeypatch.setattr(f"{builders}.randomised", lambda module, **_: module)
    model = MODELS[name](share_embeddings="all" if "copying" in name else "none")
    names = {id(weight): part for part, weight in model.named_parameters()}
    for make in (adamw, muon):
        [matrices, _] = make(model, lr=0.1, weight_decay=0.3).param_groups
        for weight in matrices["params"]:
            assert sum(size > 1 for size in weight.shape) > 1, names[id(weight)]
            assert weight.std() > 0, f"{names[id(weight)]} begins at a constant"
            assert make is adamw or weight.shape[0] != VOCABULARY, names[id(weight)]


@pytest.mark.parametrize("factors", [{}, {"decoder": 0.5}])
@pytest.mark.parametrize("name", ["bahdanau", "copying mha", "additive", "rwkv7"])
def test_a_run_goes_on_whose_optimizer_took_vectors_for_matrices(name, factors):
    model = MODELS[name]()
    tables = {id(model.source_embedding.table.weight), id(model.target_embedding.table.weight)}
    groups = {True: [], False: []}
    for weight in model.parameters():
        groups[weight.dim() >= 2 and id(weight) not in tables].append(weight)
    groups = [{"params": some} for some in groups.values()]
    before = ParameterGroups(lr_factors=factors).split(model, torch.optim.AdamW(groups, lr=0.1))
    gradients(model, seed=0)
    before.step()
    now = ParameterGroups(lr_factors=factors).split(model, adamw(model, lr=0.1))
    sizes = [[len(group["params"]) for group in one.param_groups] for one in (before, now)]
    assert sizes[0] != sizes[1]
    now.load_state_dict(copy.deepcopy(regrouped(before.state_dict(), model, now)))
    for weight in model.parameters():
        if weight.grad is not None:
            assert torch.equal(now.state[weight]["exp_avg"], before.state[weight]["exp_avg"])


def test_a_run_whose_muon_took_vectors_for_matrices_is_refused(monkeypatch):
    model = make_recurrent()
    with monkeypatch.context() as patch:
        tables = {id(model.target_embedding.table.weight)}
        patch.setattr("seqattn.training.muon.table_ids", lambda _: tables)
        before = muon(model, lr=0.1)
    gradients(model, seed=0)
    before.step()
    with pytest.raises(UserError, match=r"start a new run with init_from=RUN/model$"):
        regrouped(before.state_dict(), model, muon(model, lr=0.1))


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
