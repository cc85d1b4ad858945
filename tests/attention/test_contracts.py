"""What layers, searches and captures ask of every attention: mixing, weights, caches cut short."""

from functools import partial

import pytest
import torch

from seqattn.analysis import capture
from seqattn.attention.base import Mixer
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build, with_settings
from tests.builders import (
    DIM,
    attention_choices,
    causal_mask,
    full_mask,
    load_choice,
    load_variant,
    make_attention,
    make_position,
)
from tests.tolerance import close

B, T = 2, 9
EVERYONE = torch.ones(B, T, dtype=torch.bool)
PLACES = torch.arange(T)
DECODERS = [
    name
    for name in attention_choices()
    if make_attention(load_variant(name)).abilities.fits("decoder")
]


def built(name):
    sized = load_choice("attention", name)
    kernel = sized.keywords["kernel"]
    small = dict.fromkeys(("stride", "window", "block_size", "bucket_size", "chunk"), 2)
    known = {key: value for key, value in small.items() if key in kernel.keywords}
    extra = {"summary": 1} if "summary" in kernel.keywords else {}
    factory = partial(sized.func, **{**sized.keywords, "kernel": partial(kernel, **known, **extra)})
    return make_attention(factory)


def decoded(attention, cache, x, start, position):
    """The outputs of tokens from `start` on, one after the other; `x` is (B*K, T, D)."""
    steps = []
    for t in range(start, x.shape[1]):
        mask = Mask(PLACES[t : t + 1], PLACES[: t + 1], causal=True)
        steps.append(attention.mix(x[:, t : t + 1], mask, position, cache))
    return torch.cat(steps, dim=1)


@pytest.mark.parametrize("name", attention_choices())
def test_mixing_is_attending_to_what_is_mixed(name):
    attention = built(name)
    assert isinstance(attention, Mixer)
    position, x = make_position(load_choice("position", "none")), torch.randn(B, T, DIM)
    mask = full_mask(EVERYONE) if attention.abilities.bidirectional else causal_mask(EVERYONE)
    attended = attention(x, attention.project(x), mask, position)
    assert attended.weights is None
    assert torch.equal(attention.mix(x, mask, position), attended.output)


@pytest.mark.parametrize("name", attention_choices())
def test_weights_come_where_they_are_asked_of_an_attention_that_has_probabilities(name):
    attention = built(name)
    if not attention.abilities.cross:
        pytest.skip(f"{name} does not attend across")
    position, x = make_position(load_choice("position", "none")), torch.randn(B, T, DIM)
    memory, mask = torch.randn(B, 5, DIM), Mask(PLACES, torch.arange(5))
    plain = attention(x, attention.project(memory), mask, position)
    asked = attention(x, attention.project(memory), mask, position, need_weights=True)
    close(asked.output, plain.output)
    assert (asked.weights is not None) == attention.abilities.copies
    if asked.weights is not None:
        assert asked.weights.shape == (B, T, 5)
        torch.testing.assert_close(asked.weights.sum(-1), torch.ones(B, T))


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_cache_cut_short_goes_on_as_if_it_had_never_gone_further(name):
    attention, beams = built(name), 2
    position = make_position(load_choice("position", "none"))
    cache = attention.make_cache(beams)
    x = torch.randn(B * beams, T, DIM)
    decoded(attention, cache, x[:, :5], 0, position)
    if not attention.abilities.crop:
        with pytest.raises(NotImplementedError):
            cache.crop(3)
        return
    cache.reorder(torch.tensor([[1, 0], [1, 1]]))
    held = cache.nbytes
    cache.crop(3)
    assert cache.nbytes == held * 3 // 5
    got = decoded(attention, cache, x, 3, position)
    fresh = attention.make_cache(beams)
    decoded(attention, fresh, x[:, :3], 0, position)
    fresh.reorder(torch.tensor([[1, 0], [1, 1]]))
    assert torch.equal(got, decoded(attention, fresh, x, 3, position))


@pytest.mark.parametrize("name", attention_choices())
def test_capturing_in_training_with_dropout_changes_no_output(name):
    attention = built(name)
    if not (attention.abilities.weights and attention.abilities.dropout):
        pytest.skip(f"{name} drops no weights that can be shown")
    sized = load_choice("attention", name)
    attention = make_attention(partial(sized, dropout=0.5)).train()
    position, x = make_position(load_choice("position", "none")), torch.randn(B, T, DIM)
    made = [full_mask] * attention.abilities.bidirectional + [
        causal_mask
    ] * attention.abilities.causal
    for make in made:
        torch.manual_seed(3)
        expected = attention.mix(x, make(EVERYONE), position)
        torch.manual_seed(3)
        with capture(attention):
            got = attention.mix(x, make(EVERYONE), position)
        assert torch.equal(got, expected)


def options():
    """Every option of a shipped kernel that is a number, and what is below all that it takes."""
    for name in attention_choices():
        for key, value in load_choice("attention", name).keywords["kernel"].keywords.items():
            if type(value) in (int, float):
                none = key in (
                    "random_blocks", "global_blocks", "global_tokens", "sinks", "seed", "initial",
                )  # fmt: skip
                yield name, key, -1 if none else type(value)(0)


@pytest.mark.parametrize(("name", "option", "low"), options())
def test_a_number_below_what_an_option_of_a_kernel_takes_is_refused(name, option, low):
    node = with_settings(choices("attention")[name], {"kernel": {option: low}})
    with pytest.raises(UserError, match=rf"^kernel.{option} must be a .*number .*, got {low}$"):
        build(node)
