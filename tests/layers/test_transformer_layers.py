"""Encoder and decoder layers against PyTorch's with the same weights."""

import pytest
import torch
from torch import nn

from seqattn.attention.masks import Mask
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer, LayerShape
from seqattn.positions import Position, Stack
from tests.builders import (
    DIM,
    HEADS,
    causal_mask,
    copy_attention,
    copy_rest,
    full_mask,
    heads,
    randomised,
)
from tests.tolerance import close

B, T, S, INNER = 2, 5, 7, 20
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
SOURCE_REAL = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0]], dtype=torch.bool)
NOWHERE = Position(Stack(DIM, HEADS))
STYLES = [(True, "relu"), (True, "gelu"), (False, "relu"), (False, "gelu")]


def shape(pre_norm, activation):
    return LayerShape(DIM, INNER, activation, "layernorm", pre_norm, dropout=0.0)


def assert_equal_in_value_and_gradient(ours, theirs, inputs, twins):
    close(ours, theirs)
    upstream = torch.randn_like(ours)
    got = torch.autograd.grad((ours * upstream).sum(), inputs)
    expected = torch.autograd.grad((theirs * upstream).sum(), twins)
    for one, other in zip(got, expected):
        close(one, other, 1e-4)


def twin_inputs(*shapes):
    inputs = [torch.randn(s, requires_grad=True) for s in shapes]
    return inputs, [x.detach().clone().requires_grad_() for x in inputs]


@pytest.mark.parametrize(("pre_norm", "activation"), STYLES)
def test_an_encoder_layer_equals_pytorchs(pre_norm, activation):
    ours = randomised(EncoderLayer(shape(pre_norm, activation), heads()))
    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=pre_norm
    )
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_rest(theirs, ours, (ours.attend, ours.feed))
    (x,), (twin,) = twin_inputs((B, T, DIM))
    out = ours(x, full_mask(REAL), NOWHERE)
    reference = theirs(twin, src_key_padding_mask=~REAL)
    assert_equal_in_value_and_gradient(out, reference, [x], [twin])


@pytest.mark.parametrize(("pre_norm", "activation"), STYLES)
def test_a_decoder_layer_equals_pytorchs(pre_norm, activation):
    ours = randomised(DecoderLayer(shape(pre_norm, activation), DIM, heads(), heads()))
    theirs = nn.TransformerDecoderLayer(
        DIM, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=pre_norm
    )
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    copy_rest(theirs, ours, (ours.attend, ours.cross, ours.feed))
    (x, memory), twins = twin_inputs((B, T, DIM), (B, S, DIM))
    source = ours.cross_attention.project(memory)
    source_mask = Mask(torch.arange(T), torch.arange(S), SOURCE_REAL)
    out, _ = ours(x, causal_mask(REAL), NOWHERE, source, source_mask, None)
    reference = theirs(
        *twins,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~REAL,
        memory_key_padding_mask=~SOURCE_REAL,
    )
    assert_equal_in_value_and_gradient(out, reference, [x, memory], twins)


def test_a_position_acts_on_self_attention_and_never_on_cross_attention():
    class Loud(Position):
        hooks = frozenset({"rotate"})
        calls = 0

        def rotate(self, x, positions):
            Loud.calls += 1
            assert x.shape[2] == positions.shape[-1] == T  # never the S keys of the source
            return x

    layer = DecoderLayer(shape(True, "relu"), DIM, heads(), heads())
    memory = torch.randn(B, S, DIM)
    source_mask = Mask(torch.arange(T), torch.arange(S), SOURCE_REAL)
    layer(
        torch.randn(B, T, DIM),
        causal_mask(REAL),
        Loud(Stack(DIM, HEADS)),
        layer.cross_attention.project(memory),
        source_mask,
        None,
    )
    assert Loud.calls == 2  # queries and keys, once each
