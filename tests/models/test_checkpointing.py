"""Activation checkpointing changes nothing but memory."""

import pytest
import torch

from tests.builders import HEADS, POSITIONS, heads, make_transformer, padded, targets
from tests.tolerance import close

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3]])


def trained_once(checkpointing, options):
    model = make_transformer(checkpoint_activations=checkpointing, dropout=0.3, **options).train()
    passes = []
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.register_forward_pre_hook(lambda *args: passes.append(1))
    torch.manual_seed(5)
    loss = model(SOURCES, targets(2, 5)).square().sum()
    forward = len(passes)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return loss.detach(), gradients, torch.rand(3), (forward, len(passes))


@pytest.mark.parametrize(
    "options",
    [
        {"position": POSITIONS["rope"]},
        {"attention": heads(HEADS, 2, dropout=0.2), "position": POSITIONS["rope"]},
        {"copy": True},
    ],
    ids=["heads", "dropout", "copying"],
)
def test_loss_gradients_and_random_numbers_are_the_same_to_the_bit(options):
    loss, gradients, drawn, passes = trained_once(False, options)
    same_loss, same_gradients, same_drawn, recomputed = trained_once(True, options)
    assert passes == (4, 4)
    assert recomputed == (4, 8)
    assert torch.equal(loss, same_loss)
    assert torch.equal(drawn, same_drawn)
    assert gradients.keys() == same_gradients.keys()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, same_gradients[name]), name


def test_a_backward_pass_does_not_write_the_cache_twice():
    model = make_transformer(position=POSITIONS["rope"], checkpoint_activations=True).train()
    ids = targets(2, 5)
    state = model.start(model.encode(SOURCES))
    logits = model.decode(ids, state)
    written = state.nbytes
    logits.square().sum().backward()
    assert state.nbytes == written
    got = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    model(SOURCES, ids).square().sum().backward()
    for name, parameter in model.named_parameters():
        close(got[name], parameter.grad, 1e-4)
