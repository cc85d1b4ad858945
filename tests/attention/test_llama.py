"""Grouped heads with rotary positions against Llama's attention of `transformers`."""

from functools import partial

import pytest
import torch

from seqattn.positions import RotaryPosition, Stack
from tests.builders import causal_mask, heads, make_attention

llama = pytest.importorskip("transformers.models.llama.modeling_llama")

B, T, DIM, HEADS = 2, 7, 24, 4


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_heads_with_rotary_positions_equal_llamas_in_value_and_gradient(groups):
    config = llama.LlamaConfig(
        hidden_size=DIM, num_attention_heads=HEADS, num_key_value_heads=groups,
        attn_implementation="eager", rope_theta=500.0,
    )  # fmt: skip
    theirs = llama.LlamaAttention(config, layer_idx=0).double()
    ours = make_attention(partial(heads(HEADS, groups), bias=False), DIM).double()
    pairs = ((ours.query, "q_proj"), (ours.key, "k_proj"), (ours.value, "v_proj"))
    for own, name in (*pairs, (ours.output, "o_proj")):
        getattr(theirs, name).load_state_dict(own.state_dict())
    x = torch.randn(B, T, DIM, dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    position = RotaryPosition(Stack(DIM, HEADS), base=500.0)
    mask = causal_mask(torch.ones(B, T, dtype=torch.bool))
    got = ours(x, ours.project(x), mask, position).output
    angles = llama.LlamaRotaryEmbedding(config)(twin, torch.arange(T)[None])
    hidden = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    expected, _ = theirs(twin, position_embeddings=angles, attention_mask=hidden)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
    (ours_gradient,) = torch.autograd.grad(got.square().sum(), x)
    (gradient,) = torch.autograd.grad(expected.square().sum(), twin)
    torch.testing.assert_close(ours_gradient, gradient, atol=1e-4, rtol=1e-4)  # float32 angles
