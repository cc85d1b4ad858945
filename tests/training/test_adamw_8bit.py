"""AdamW with moments of 8 bits: which weights have them, and that its steps are AdamW's nearly."""

import copy
import sys

import pytest
import torch

from seqattn.checking import BadValue
from seqattn.errors import UserError
from seqattn.training.adamw_8bit import adamw_8bit
from seqattn.training.optim import adamw
from tests.builders import make_transformer
from tests.nodes import made
from tests.training.test_muon import gradients

pytest.importorskip("bitsandbytes")


def wide():
    return make_transformer(dim=64)


def moved(model, make, steps):
    """The weights after so many steps of an optimizer, and the optimizer."""
    optimizer = make(model)
    for seed in range(steps):
        gradients(model, seed)
        optimizer.step()
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}, optimizer


def test_large_matrices_have_moments_of_a_byte_and_embeddings_and_vectors_have_not():
    model = wide()
    _, optimizer = moved(model, lambda model: adamw_8bit(model, lr=0.01), 1)
    held = [part for group in optimizer.param_groups for part in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, model.parameters()))
    for name, weight in model.named_parameters():
        small = weight.dim() < 2 or "table" in name or weight.numel() < 4096
        wanted = torch.float32 if small else torch.uint8
        for moment in ("state1", "state2"):
            assert optimizer.state[weight][moment].dtype == wanted, name


def test_its_steps_are_nearly_those_of_adamw():
    model = wide()
    begun = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    settings = {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-7, "weight_decay": 0.3}
    theirs, _ = moved(copy.deepcopy(model), lambda model: adamw(model, **settings), 5)
    ours, _ = moved(model, lambda model: adamw_8bit(model, **settings), 5)
    for name, weight in ours.items():
        if name.endswith("key.bias"):
            continue  # which has no gradient but noise
        way, other = weight - begun[name], theirs[name] - begun[name]
        assert (way - other).norm() < 0.1 * other.norm() + 1e-6, name


def test_what_is_loaded_goes_on_as_what_was_saved(tmp_path):
    whole, _ = moved(model := wide(), lambda model: adamw_8bit(model, lr=0.01), 4)
    model = wide()
    _, optimizer = moved(model, lambda model: adamw_8bit(model, lr=0.01), 2)
    torch.save(optimizer.state_dict(), tmp_path / "state")
    again = adamw_8bit(model, lr=0.5)
    again.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for seed in (2, 3):
        gradients(model, seed)
        again.step()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, whole[name]), name


def test_a_value_out_of_range_and_a_package_that_is_not_there_are_refused(monkeypatch):
    with pytest.raises(BadValue, match="lr must be a number from 0"):
        made(adamw_8bit, model=wide(), lr=-1.0)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(UserError, match=r"needs bitsandbytes; run pip install .*\[8bit\]"):
        adamw_8bit(wide(), lr=0.1)
