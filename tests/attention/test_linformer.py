"""Linformer attention against loops over places, full attention, and what it cannot do."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.linformer import LinformerKernel
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.generation import Generator, GreedySearch
from seqattn.positions import Position, Stack
from tests.builders import (
    HEAD_DIM,
    HEADS,
    causal_mask,
    full_mask,
    load_choice,
    make_transformer,
)
from tests.tolerance import close

B, T, PROJECTED, LONGEST = 2, 5, 3, 9
REAL = torch.tensor([[1] * 5, [0, 1, 1, 1, 0]], dtype=torch.bool)
EVERYONE = torch.ones(B, T, dtype=torch.bool)
NOWHERE = Position(Stack(HEADS * HEAD_DIM, HEADS))


def inputs(groups=HEADS, length=T):
    q = torch.randn(B, HEADS, length, HEAD_DIM, requires_grad=True)
    k, v = (torch.randn(B, groups, length, HEAD_DIM, requires_grad=True) for _ in range(2))
    return q, k, v


def place_by_place(kernel, q, k, v, real):
    """The definition in float64; a token's place counts the real tokens before it."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    tables = kernel.keys_by_place.double(), kernel.values_by_place.double()
    for b in range(B):
        tokens = real[b].nonzero()[:, 0].tolist()
        for h in range(HEADS):
            g = h * k.shape[1] // HEADS
            keys, values = (
                sum(
                    table[:, place, None] * x[b, g, token].double()
                    for place, token in enumerate(tokens)
                )
                for table, x in zip(tables, (k, v))
            )
            scores = q[b, h].double() @ keys.T / HEAD_DIM**0.5
            out[b, h] = scores.softmax(-1) @ values
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_equals_the_definition_in_value_and_gradient(groups):
    kernel = LinformerKernel(
        HeadShape(HEADS, groups, HEAD_DIM), projected=PROJECTED, max_length=LONGEST
    )
    q, k, v = inputs(groups)
    expected = place_by_place(kernel, q, k, v, REAL)
    got = kernel(q, KeysValues(k, v), full_mask(REAL), NOWHERE).context
    close(got.double(), expected)
    upstream = torch.randn(q.shape)
    sources = (q, k, v, kernel.keys_by_place, kernel.values_by_place)
    ours = torch.autograd.grad((got * upstream).sum(), sources)
    theirs = torch.autograd.grad((expected * upstream).sum(), sources)
    for one, other in zip(ours, theirs):
        assert (other != 0).any()
        close(one, other, bound=2e-5)


@pytest.mark.parametrize("groups", [2, 4])
def test_as_many_mixtures_as_tokens_and_the_identity_give_full_attention(groups):
    kernel = LinformerKernel(HeadShape(HEADS, groups, HEAD_DIM), projected=T, max_length=T)
    with torch.no_grad():
        kernel.keys_by_place.copy_(torch.eye(T))
        kernel.values_by_place.copy_(torch.eye(T))
    q, k, v = inputs(groups)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    got = kernel(q, KeysValues(k, v), full_mask(EVERYONE), NOWHERE).context
    torch.testing.assert_close(got, expected)


def test_padding_may_reach_beyond_the_longest_sentence():
    kernel = LinformerKernel(HeadShape(HEADS, HEADS, HEAD_DIM), projected=PROJECTED, max_length=T)
    q, k, v = inputs(length=T + 3)
    for before in range(4):
        real = torch.zeros(B, T + 3, dtype=torch.bool)
        real[:, before : before + T] = True
        got = kernel(q, KeysValues(k, v), full_mask(real), NOWHERE).context
        expected = place_by_place(kernel, q, k, v, real)
        close(got.double(), expected)


def test_a_sentence_that_is_too_long_is_refused():
    kernel = LinformerKernel(HeadShape(HEADS, HEADS, HEAD_DIM), max_length=T - 1)
    q, k, v = inputs()
    for mask in (full_mask(EVERYONE), Mask(torch.arange(T), torch.arange(T))):
        with pytest.raises(UserError) as caught:
            kernel(q, KeysValues(k, v), mask, NOWHERE)
        assert str(caught.value) == (
            "LinformerKernel supports at most attention.kernel.max_length (4) tokens per sentence, "
            "got 5"
        )


def test_a_model_knows_its_longest_source_and_no_longest_target():
    model = make_transformer(load_choice("attention", "linformer"))
    assert model.max_source_length == 512
    assert model.max_target_length is None


def test_dropout_drops_whole_mixtures():
    kernel = LinformerKernel(
        HeadShape(HEADS, HEADS, HEAD_DIM, 0.4), projected=HEAD_DIM, max_length=HEAD_DIM
    )
    with torch.no_grad():
        kernel.values_by_place.copy_(torch.eye(HEAD_DIM))
    q, k, _ = inputs(length=HEAD_DIM)
    v = torch.eye(HEAD_DIM).expand_as(k)  # the context is the weights over mixtures
    mask = full_mask(torch.ones(B, HEAD_DIM, dtype=torch.bool))
    dropped = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    true = kernel.eval()(q, KeysValues(k, v), mask, NOWHERE).context
    kept = dropped != 0
    assert 0.5 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], true[kept] / 0.6, rtol=1e-4, atol=0)


def test_a_mask_that_hides_some_keys_from_some_queries_is_refused():
    kernel = LinformerKernel(HeadShape(HEADS, HEADS, HEAD_DIM))
    q, k, v = inputs()
    own = Mask(torch.arange(T), torch.arange(T), extra=torch.ones(T, T, dtype=torch.bool))
    for mask in (own, causal_mask(REAL)):
        with pytest.raises(AssertionError):
            kernel(q, KeysValues(k, v), mask, NOWHERE)


def test_no_fused_attention_runs_in_bfloat16_on_a_cpu_where_its_backward_pass_is_slow():
    class Attending(TorchDispatchMode):
        types = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "scaled_dot_product" in function.name():
                self.types += (args[0].dtype,)
            return function(*args, **(kwargs or {}))

    kernel = LinformerKernel(HeadShape(HEADS, HEADS, HEAD_DIM), projected=3, max_length=9)
    q, k, v = (x.bfloat16() for x in inputs())
    with Attending() as attending, torch.autocast("cpu", torch.bfloat16):
        context = kernel(q, KeysValues(k, v), full_mask(EVERYONE), NOWHERE).context
        context.float().sum().backward()
    assert context.dtype == torch.bfloat16
    assert torch.bfloat16 not in attending.types


def test_a_search_names_its_key_for_a_source_that_is_too_long():
    model = make_transformer(partial(load_choice("attention", "linformer"), num_heads=HEADS))
    generator = Generator(model, GreedySearch())
    with pytest.raises(UserError, match=r"at most 512; .* larger attention\.kernel\.max_len"):
        generator.generate([[4] * 513])
