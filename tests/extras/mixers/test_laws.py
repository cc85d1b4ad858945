"""What mixers obey besides the laws of conformance; a new one joins by its YAML."""

import pytest
import torch

from seqattn.attention.masks import Mask
from seqattn.positions import Position, Stack
from tests.builders import DIM, causal_mask, full_mask
from tests.extras.mixers.choices import NAMES, mixer
from tests.tolerance import close

B, T = 2, 7
EVERYONE = torch.ones(B, T, dtype=torch.bool)
NOWHERE = Position(Stack(DIM, 1))
MASKS = {"encoder": full_mask, "decoder": causal_mask}

pytestmark = pytest.mark.parametrize("name", NAMES)


def mix(one, x, mask, cache=None):
    return one.mix(x, mask, NOWHERE, cache)


def of_everyone(x):
    return torch.ones(x.shape[:2], dtype=torch.bool)


def test_an_output_of_an_encoder_depends_on_tokens_on_both_sides(name):
    one, x = mixer(name), torch.randn(B, T, DIM, requires_grad=True)
    out = mix(one, x, full_mask(EVERYONE))
    for t in range(T):
        (gradient,) = torch.autograd.grad(out[:, t].square().sum(), x, retain_graph=True)
        assert (gradient.abs().amax(dim=(0, 2)) > 0).all()  # of one text, a ReLU may hide it


@pytest.mark.parametrize("cuts", [(1,) * T, (T,), (3, 1, 1, 2)])
def test_tokens_in_pieces_through_its_cache_equal_one_pass_in_values_and_gradients(name, cuts):
    """One token at a time, this is the plain loop, and one pass is the parallel form."""
    one, x = mixer(name).double(), torch.randn(B, T, DIM, dtype=torch.float64, requires_grad=True)
    cache, steps, end, places = one.make_cache(beams=1), [], 0, torch.arange(T)
    for piece in x.split(cuts, dim=1):
        start, end = end, end + piece.shape[1]
        steps.append(mix(one, piece, Mask(places[start:end], places[:end], causal=True), cache))
    outputs = torch.cat(steps, dim=1), mix(one, x, causal_mask(EVERYONE))
    torch.testing.assert_close(*outputs, atol=1e-10, rtol=1e-10)
    factor = torch.randn_like(outputs[0])
    leaves = (x, *one.parameters())
    for got, expected in zip(*(torch.autograd.grad((o * factor).sum(), leaves) for o in outputs)):
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-8)


@torch.inference_mode()
@pytest.mark.parametrize("slot", MASKS)
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_float32_is_as_precise_where_some_gates_are_nearly_closed_among_open_ones(name, slot, size):
    one, x = mixer(name, chunk=64), torch.randn(B, 20, DIM)
    x[:, 2::5] *= size  # closes some gates of these tokens, and opens others
    mask = MASKS[slot](of_everyone(x))
    expected = mix(mixer(name, chunk=1).double(), x.double(), mask)
    close(mix(one, x, mask)[:, 3::5].double(), expected[:, 3::5])


@torch.inference_mode()
def test_the_cache_has_a_constant_size_and_cannot_be_cut_short(name):
    one, x = mixer(name), torch.randn(B, 40, DIM)
    sizes, places = [], torch.arange(40)
    for length in (1, 9, 40):
        cache = one.make_cache(beams=1)
        mix(one, x[:, :length], Mask(places[:length], places[:length], causal=True), cache)
        sizes.append(cache.nbytes)
    assert sizes[0] == sizes[1] == sizes[2] > 0
    assert not one.abilities.crop
    with pytest.raises(NotImplementedError):
        cache.crop(3)


@pytest.mark.parametrize("slot", MASKS)
def test_the_size_of_a_chunk_changes_nothing(name, slot):
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    outputs = [
        mix(mixer(name, chunk=chunk).double(), x, MASKS[slot](EVERYONE)) for chunk in (1, 2, 3, 64)
    ]
    for got in outputs[1:]:
        torch.testing.assert_close(got, outputs[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("slot", MASKS)
def test_autocast_to_bfloat16_stays_close_to_float32(name, slot):
    one, x = mixer(name), torch.randn(B, 40, DIM)
    mask = MASKS[slot](of_everyone(x))
    exact = mix(one, x, mask)
    with torch.autocast("cpu", torch.bfloat16):
        rough = mix(one, x, mask)
    assert rough.dtype == torch.bfloat16
    close(rough.float(), exact, 0.03)


def test_texts_of_any_length_within_a_chunk_share_compiled_code(name):
    one, graphs = mixer(name, chunk=64), []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(mix, fullgraph=True, backend=count)
    for length in (9, 10, 11):
        x, real = torch.randn(B, length, DIM), torch.ones(B, length, dtype=torch.bool)
        real[0, -2:] = False
        close(compiled(one, x, causal_mask(real)), mix(one, x, causal_mask(real)))
    assert len(graphs) <= 2
