"""The laws that every mixer of conf/attention obeys; a new one joins by its YAML."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.attention.masks import Mask
from seqattn.positions import Position, Stack
from tests.attention.test_conformance import K, beam_mask, padded_rows
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


def test_the_docstring_states_the_cost_and_the_source(name):
    text = type(mixer(name)).__doc__.lower()
    assert "arxiv" in text or "aclanthology" in text
    for word in ("time", "memory", "cache", "right to left"):
        assert word in text


def test_an_output_of_a_decoder_depends_on_every_token_so_far_and_on_no_later_one(name):
    one, x = mixer(name), torch.randn(B, T, DIM, requires_grad=True)
    out = mix(one, x, causal_mask(EVERYONE))
    for t in range(T):
        (gradient,) = torch.autograd.grad(out[:, t].square().sum(), x, retain_graph=True)
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, : t + 1].abs().amax(dim=(0, 2)) > 0).all()


def test_an_output_of_an_encoder_depends_on_tokens_on_both_sides(name):
    one, x = mixer(name), torch.randn(B, T, DIM, requires_grad=True)
    out = mix(one, x, full_mask(EVERYONE))
    for t in range(T):
        (gradient,) = torch.autograd.grad(out[:, t].square().sum(), x, retain_graph=True)
        assert (gradient.abs().amax(dim=(0, 2)) > 0).all()  # of one text, a ReLU may hide it


@pytest.mark.parametrize("slot", MASKS)
def test_real_outputs_depend_on_neither_padding_nor_neighbors(name, slot):
    one, make = mixer(name), MASKS[slot]
    sentences = [torch.randn(1, length, DIM) for length in (5, 3)]
    alone = [mix(one, each, make(of_everyone(each)))[0] for each in sentences]
    for before, after in ((0, 4), (4, 0), (2, 3)):
        batch, real = padded_rows(sentences, before, after)
        together = mix(one, batch, make(real))
        for row, expected in enumerate(alone):
            close(together[row, real[row]], expected)


@pytest.mark.parametrize("slot", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_text_of_nothing_but_padding_gives_zeros_and_no_gradient(name, slot, dtype):
    one = mixer(name).to(dtype)
    real = torch.tensor([[1] * T, [0] * T], dtype=torch.bool)
    x = torch.randn(B, T, DIM, dtype=dtype, requires_grad=True)
    out = mix(one, x, MASKS[slot](real))
    assert (out[1] == 0).all()
    out.square().sum().backward()
    assert (x.grad[1] == 0).all()
    assert (x.grad[0].abs().amax(dim=1) > 0).all()
    assert all(p.grad.isfinite().all() for p in one.parameters())


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
@pytest.mark.parametrize("blank", [0, 2])
def test_beams_of_ragged_sentences_that_reorder_and_leave_go_on_as_each_would_alone(name, blank):
    one = mixer(name)
    rows = [torch.randn(3, DIM)] * K + [torch.randn(3 - blank, DIM)] * K
    real = torch.ones(B, 3, dtype=torch.bool)
    real[1, :blank] = False
    new = torch.stack([F.pad(row, (0, 0, 3 - len(row), 0), value=9.0) for row in rows])
    cache = one.make_cache(beams=K)
    for step in range(6):
        got = mix(one, new, beam_mask(real, new.shape[1]), cache)[:, -1]
        for row, out in zip(rows, got):
            close(out, mix(one, row[None], causal_mask(of_everyone(row[None])))[0, -1])
        index = torch.tensor([[2, 0, 0], [1, 1, 2]])[: len(real)]
        cache.reorder(index)
        rows = [rows[K * b + k] for b, beams in enumerate(index.tolist()) for k in beams]
        if step == 1:  # the first sentence is done
            cache.keep(torch.tensor([1]))
            rows, real = rows[K:], real[1:]
        new = torch.randn(len(rows), 1 + step % 2, DIM)
        rows = [torch.cat((row, more)) for row, more in zip(rows, new)]
        real = F.pad(real, (0, new.shape[1]), value=True)


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
def test_gradients_agree_with_finite_differences_in_float64(name, slot):
    dim = 8
    one = mixer(name, dim, chunk=2, state_dim=3).double()
    names, values = zip(*one.named_parameters())
    real = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]], dtype=torch.bool)
    x = torch.randn(B, 4, dim, dtype=torch.float64, requires_grad=True)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = one

        def forward(self, x):
            return mix(self.one, x, MASKS[slot](real))

    def call(x, *parameters):
        named = {f"one.{key}": value for key, value in zip(names, parameters)}
        return torch.func.functional_call(Block(), named, (x,))

    inputs = (x, *(value.detach().clone().requires_grad_() for value in values))
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize("slot", MASKS)
def test_autocast_to_bfloat16_stays_close_to_float32(name, slot):
    one, x = mixer(name), torch.randn(B, 40, DIM)
    mask = MASKS[slot](of_everyone(x))
    exact = mix(one, x, mask)
    with torch.autocast("cpu", torch.bfloat16):
        rough = mix(one, x, mask)
    assert rough.dtype == torch.bfloat16
    close(rough.float(), exact, 0.03)


@pytest.mark.parametrize("slot", MASKS)
def test_it_compiles_whole_and_gives_the_same(name, slot):
    one, backend = mixer(name), "aot_eager" if slot == "decoder" else "eager"
    real = torch.tensor([[1] * T, [1] * (T - 2) + [0] * 2], dtype=torch.bool)
    mask = MASKS[slot](real)
    x, twin = (torch.randn(B, T, DIM).requires_grad_() for _ in range(2))
    twin.data.copy_(x.data)
    torch.compiler.reset()
    ours = torch.compile(mix, fullgraph=True, backend=backend)(one, x, mask)
    eager = mix(one, twin, mask)
    close(ours, eager)
    (got,) = torch.autograd.grad(ours.square().sum(), x)
    (expected,) = torch.autograd.grad(eager.square().sum(), twin)
    close(got, expected, 1e-4)


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
