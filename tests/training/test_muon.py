"""Muon: which weights it is for, and that its steps are PyTorch's."""

import copy

import pytest
import torch

from seqattn.errors import UserError
from seqattn.training import muon as module
from seqattn.training.muon import muon
from tests.builders import POSITIONS, make_transformer, random_ids, targets


def parts(model):
    """The weights of inner matrices, and all others."""
    inner = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() == 2 and "table" not in name and not name.startswith("head")
    }
    return inner, {k: v for k, v in model.named_parameters() if k not in inner}


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_matrices_are_orthogonalised_and_embeddings_head_biases_and_norms_are_not(sharing):
    model = make_transformer(share_embeddings=sharing)
    matrices, others = parts(model)
    found = [{id(p) for p in group["params"]} for group in muon(model, lr=0.1).param_groups]
    assert found == [{id(p) for p in some.values()} for some in (matrices, others)]
    assert matrices
    assert others


def gradients(model, seed):
    model.zero_grad()
    logits = model(random_ids(2, 7, seed=seed), targets(2, 5, seed=seed + 9))
    logits.log_softmax(-1)[..., 4].sum().backward()


def test_steps_are_those_of_torchs_muon_and_adamw():
    ours = make_transformer(position=POSITIONS["learned"])
    theirs = copy.deepcopy(ours)
    mine = muon(ours, 0.05, momentum=0.9, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.3)
    matrices, others = (list(some.values()) for some in parts(theirs))
    references = [
        torch.optim.Muon(
            matrices, lr=0.05, momentum=0.9, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0, fused=True),
    ]
    for seed in range(3):
        for model, optimizers in ((ours, [mine]), (theirs, references)):
            gradients(model, seed)
            for optimizer in optimizers:
                optimizer.step()
    for (name, got), want in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, want, msg=name)


def test_what_is_loaded_goes_on_as_what_was_saved():
    whole = make_transformer()
    model = copy.deepcopy(whole)
    optimizer = muon(model, lr=0.05)
    through = muon(whole, lr=0.05)
    for seed in range(4):
        gradients(whole, seed)
        through.step()
        if seed == 2:  # as a new process does
            weights, state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model = make_transformer()
            model.load_state_dict(weights)
            optimizer = muon(model, lr=0.01)
            optimizer.load_state_dict(state)
        gradients(model, seed)
        optimizer.step()
    for got, want in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.equal(got, want)


def test_a_pytorch_that_has_none_is_told(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(UserError, match=r"^optimizer=muon needs PyTorch 2.9 or later, found "):
        muon(make_transformer(), lr=0.1)


def test_weights_in_shards_are_refused(monkeypatch):
    monkeypatch.setattr(module, "DTensor", torch.nn.Parameter)
    with pytest.raises(UserError, match=r"use optimizer=adamw$"):
        muon(make_transformer(), lr=0.1)


@pytest.mark.parametrize("first", [0, 2])
def test_a_step_whose_gradients_are_not_finite_changes_nothing_and_reads_nothing(first):
    model = make_transformer()
    optimizer = muon(model, lr=0.05)
    for seed in range(first):
        gradients(model, seed)
        optimizer.step()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))
    gradients(model, seed=5)
    for weight in model.parameters():
        weight.grad.fill_(torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    after = model.state_dict(), optimizer.state_dict()["state"]
    for name, weight in before[0].items():
        assert torch.equal(after[0][name], weight), name
    for number, state in after[1].items():
        for name, x in state.items():
            assert torch.equal(x, before[1].get(number, {}).get(name, torch.zeros_like(x))), name
    optimizer.found_inf = torch.zeros(())
    other = copy.deepcopy(model)
    theirs = muon(other, lr=0.05)
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, taken in ((model, optimizer), (other, theirs)):
        gradients(one, seed=7)
        taken.step()
    for got, want in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(got, want)


def test_muon_says_that_it_asks_for_no_wait():
    assert muon(make_transformer(), lr=0.1).defaults["fused"]
    assert not muon(make_transformer(), lr=0.1, fused=False).defaults["fused"]


def test_a_step_on_a_device_reads_no_number_back():
    model = make_transformer().to("meta")
    optimizer = muon(model, lr=0.05, fused=False)
    for weight in model.parameters():
        weight.grad = torch.empty_like(weight)
    optimizer.step()
    optimizer._parts = optimizer._parts[:1]  # AdamW's fused step is for real devices
    optimizer.param_groups = optimizer.param_groups[:1]
    optimizer.found_inf = torch.ones((), device="meta")
    optimizer.step()
