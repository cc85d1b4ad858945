"""A state that is cropped goes on as if it had never gone further."""

import pytest
import torch

from seqattn.tokens import BOS
from tests.builders import POSITIONS, heads, load_variant, make_transformer, padded, random_ids
from tests.models.recurrents import make_recurrent
from tests.tolerance import close

SOURCES = padded([[4, 5, 6, 7, 3], [9, 4, 3]])
B, K, T = 2, 3, 6
MODELS = {
    "mha": lambda: make_transformer(heads(), POSITIONS["sinusoidal"]),
    "gqa": lambda: make_transformer(heads(4, 2), POSITIONS["rope"]),
    "copying": lambda: make_transformer(heads(4, 2), copy=True),
}


@torch.inference_mode()
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kept", [0, 1, 4])
def test_going_on_after_a_crop_equals_never_having_gone_further(name, kept):
    model = MODELS[name]()
    ids = random_ids(B * K, T)
    ids[:, 0] = BOS
    state = model.start(model.encode(SOURCES), beams=K)
    whole = model.decode(ids, state)
    assert state.can_crop
    size = state.nbytes
    state.crop(kept)
    assert state.nbytes < size
    other = random_ids(B * K, 2, seed=7)
    fresh = model.start(model.encode(SOURCES), beams=K)
    if kept:
        close(model.decode(ids[:, :kept], fresh), whole[:, :kept], 5e-5)
    for step in other.split(1, dim=1):
        close(model.decode(step, state), model.decode(step, fresh), 5e-5)


@torch.inference_mode()
def test_a_crop_after_beams_moved_and_sentences_left_keeps_their_own_past():
    model = MODELS["gqa"]()
    ids, index = random_ids(B * K, 3), torch.tensor([[2, 0, 0], [1, 1, 2]])
    states = []
    for further in (False, True):
        state = model.start(model.encode(SOURCES), beams=K)
        model.decode(ids, state)
        state.reorder(index)
        state.keep(torch.tensor([1]))
        if further:
            model.decode(random_ids(K, 4, seed=3), state)
            state.crop(3)
        states.append(state)
    step = random_ids(K, 1, seed=5)
    close(*(model.decode(step, state) for state in states), bound=5e-5)


@torch.inference_mode()
def test_a_crop_forgets_where_later_padding_stood():
    model = MODELS["mha"]()
    first, second = padded([[BOS, 5, 6], [BOS, 7]], left=True), padded([[4, 4], [4]], left=True)
    state = model.start(model.encode(SOURCES))
    model.decode(first, state)
    model.decode(second, state)
    state.crop(3)
    fresh = model.start(model.encode(SOURCES))
    model.decode(first, fresh)
    step = random_ids(B, 1)
    close(model.decode(step, state), model.decode(step, fresh), 5e-5)


CANNOT = {
    "rolling": lambda: make_transformer(load_variant("sliding_window, small")),
    "sums": lambda: make_transformer(load_variant("linear")),
    "recurrent": make_recurrent,
}


@pytest.mark.parametrize("name", CANNOT)
def test_a_state_that_cannot_is_refused(name):
    model = CANNOT[name]()
    state = model.start(model.encode(SOURCES))
    model.decode(torch.full((B, 1), BOS), state)
    assert not state.can_crop
    with pytest.raises(NotImplementedError):
        state.crop(0)


def test_a_state_without_caches_or_with_fewer_tokens_is_refused():
    model = MODELS["mha"]()
    memory = model.encode(SOURCES)
    assert not model.start(memory, cached=False).can_crop
    with pytest.raises(AssertionError):
        model.start(memory).crop(1)
