"""Linformer attention against loops over places, full attention, and what it cannot do."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.linformer import LinformerKernel
from seqattn.errors import UserError
from seqattn.generation import Generator, GreedySearch
from tests.attention.local import assert_equal_in_value_and_gradient, inputs, plain, run
from tests.builders import (
    HEAD_DIM,
    HEADS,
    load_choice,
    make_transformer,
)
from tests.tolerance import close

B, T, PROJECTED, LONGEST = 2, 5, 3, 9
REAL = torch.tensor([[1] * 5, [0, 1, 1, 1, 0]], dtype=torch.bool)
EVERYONE = torch.ones(B, T, dtype=torch.bool)


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


def kernel_of(projected=PROJECTED, max_length=LONGEST, groups=HEADS, dropout=0.0):
    shape = HeadShape(HEADS, groups, HEAD_DIM, dropout)
    return LinformerKernel(shape, projected=projected, max_length=max_length)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_equals_the_definition_in_value_and_gradient(groups):
    kernel, tensors = kernel_of(groups=groups), inputs(T, groups)
    got = run(kernel, tensors, plain(T, causal=False, real=REAL))
    sources = (*tensors, kernel.keys_by_place, kernel.values_by_place)
    assert_equal_in_value_and_gradient(got, place_by_place(kernel, *tensors, REAL), sources)


@pytest.mark.parametrize("groups", [2, 4])
def test_as_many_mixtures_as_tokens_and_the_identity_give_full_attention(groups):
    kernel, (q, k, v) = kernel_of(T, T, groups), inputs(T, groups)
    with torch.no_grad():
        kernel.keys_by_place.copy_(torch.eye(T))
        kernel.values_by_place.copy_(torch.eye(T))
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(run(kernel, (q, k, v), plain(T, causal=False)), expected)


def test_padding_may_reach_beyond_the_longest_sentence():
    kernel, tensors = kernel_of(max_length=T), inputs(T + 3, HEADS)
    for before in range(4):
        real = torch.zeros(B, T + 3, dtype=torch.bool)
        real[:, before : before + T] = True
        got = run(kernel, tensors, plain(T + 3, causal=False, real=real))
        close(got.double(), place_by_place(kernel, *tensors, real))


def test_a_sentence_that_is_too_long_is_refused():
    for real in (torch.ones(B, T, dtype=torch.bool), None):
        with pytest.raises(UserError) as caught:
            run(kernel_of(max_length=T - 1), inputs(T, HEADS), plain(T, causal=False, real=real))
        assert str(caught.value) == (
            "LinformerKernel supports at most attention.kernel.max_length (4) tokens per sentence, "
            "got 5"
        )


def test_a_model_knows_its_longest_source_and_no_longest_target():
    model = make_transformer(load_choice("attention", "linformer"))
    assert model.max_source_length == 512
    assert model.max_target_length is None


def test_dropout_drops_whole_mixtures():
    kernel, mask = kernel_of(HEAD_DIM, HEAD_DIM, dropout=0.4), plain(HEAD_DIM, causal=False)
    with torch.no_grad():
        kernel.values_by_place.copy_(torch.eye(HEAD_DIM))
    q, k, _ = inputs(HEAD_DIM, HEADS)
    v = torch.eye(HEAD_DIM).expand_as(k)  # the context is the weights over mixtures
    dropped = run(kernel, (q, k, v), mask)
    true = run(kernel.eval(), (q, k, v), mask)
    kept = dropped != 0
    assert 0.5 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], true[kept] / 0.6, rtol=1e-4, atol=0)


def test_no_fused_attention_runs_in_bfloat16_on_a_cpu_where_its_backward_pass_is_slow():
    class Attending(TorchDispatchMode):
        types = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "scaled_dot_product" in function.name():
                self.types += (args[0].dtype,)
            return function(*args, **(kwargs or {}))

    tensors = [x.bfloat16() for x in inputs(T, HEADS)]
    with Attending() as attending, torch.autocast("cpu", torch.bfloat16):
        context = run(kernel_of(), tensors, plain(T, causal=False))
        context.float().sum().backward()
    assert context.dtype == torch.bfloat16
    assert torch.bfloat16 not in attending.types


def test_a_search_names_its_key_for_a_source_that_is_too_long():
    model = make_transformer(partial(load_choice("attention", "linformer"), num_heads=HEADS))
    generator = Generator(model, GreedySearch())
    with pytest.raises(UserError, match=r"at most 512; .* larger attention\.kernel\.max_len"):
        generator.generate([[4] * 513])
