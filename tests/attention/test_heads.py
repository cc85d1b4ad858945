"""Multi-head, grouped-query and multi-query attention against PyTorch and against brute force."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.lsh import LSHKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions import Position, Stack
from seqattn.settings.assembly import cross_default
from tests.builders import (
    DIM,
    HEAD_DIM,
    HEADS,
    causal_mask,
    full_mask,
    heads,
    load_choice,
    make_attention,
)
from tests.nodes import made_of_settings
from tests.tolerance import close

B, T, S, MEMORY_DIM = 2, 5, 7, 10
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
SOURCE_REAL = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], dtype=torch.bool)


def reference_with_the_weights_of(attention, memory_dim=DIM):
    reference = nn.MultiheadAttention(
        DIM, HEADS, batch_first=True, kdim=memory_dim, vdim=memory_dim
    ).eval()
    q, k, v = attention.query, attention.key, attention.value
    with torch.no_grad():
        if reference._qkv_same_embed_dim:
            reference.in_proj_weight.copy_(torch.cat((q.weight, k.weight, v.weight)))
        else:
            reference.q_proj_weight.copy_(q.weight)
            reference.k_proj_weight.copy_(k.weight)
            reference.v_proj_weight.copy_(v.weight)
        reference.in_proj_bias.copy_(torch.cat((q.bias, k.bias, v.bias)))
        reference.out_proj.load_state_dict(attention.output.state_dict())
    return reference


def attend(attention, query, memory, mask, position=None):
    return attention(
        query, attention.project(memory), mask, position or Position(Stack(DIM, HEADS))
    ).output


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_equals_pytorchs_in_value_and_gradient(causal):
    attention = make_attention()
    reference = reference_with_the_weights_of(attention)
    x, twin = (torch.randn(B, T, DIM).requires_grad_() for _ in range(2))
    twin.data.copy_(x.data)
    mask = causal_mask(REAL) if causal else full_mask(REAL)
    future = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
    ours = attend(attention, x, x, mask)
    theirs, _ = reference(twin, twin, twin, key_padding_mask=~REAL, attn_mask=future)
    close(ours, theirs)
    upstream = torch.randn(B, T, DIM)
    (ours * upstream).sum().backward()
    (theirs * upstream).sum().backward()
    close(x.grad, twin.grad, bound=2e-5)
    projections = (attention.query, attention.key, attention.value)
    got = torch.cat([layer.weight.grad for layer in projections])
    close(got, reference.in_proj_weight.grad, bound=2e-5)
    bias = torch.cat([layer.bias.grad for layer in projections])
    close(bias, reference.in_proj_bias.grad, bound=2e-5)
    close(attention.output.weight.grad, reference.out_proj.weight.grad, bound=2e-5)


def test_cross_attention_to_a_memory_of_another_width_equals_pytorchs():
    attention = make_attention(memory_dim=MEMORY_DIM)
    reference = reference_with_the_weights_of(attention, MEMORY_DIM)
    query, memory = torch.randn(B, T, DIM), torch.randn(B, S, MEMORY_DIM)
    mask = Mask(torch.arange(T), torch.arange(S), SOURCE_REAL)
    theirs, _ = reference(query, memory, memory, key_padding_mask=~SOURCE_REAL)
    close(attend(attention, query, memory, mask), theirs)


def test_a_users_own_mask_may_differ_for_every_sentence_head_and_query():
    attention = make_attention()
    q, x = torch.randn(B, T, DIM), torch.randn(B, S, DIM)
    extra = torch.rand(B, HEADS, T, S) < 0.5
    extra[..., 0] = True
    mask = Mask(torch.arange(T), torch.arange(S), SOURCE_REAL).with_extra(extra)
    reference = reference_with_the_weights_of(attention)
    theirs, _ = reference(q, x, x, attn_mask=~extra.flatten(0, 1), key_padding_mask=~SOURCE_REAL)
    close(attend(attention, q, x, mask), theirs)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_the_heads_of_a_group_share_one_copy_of_their_keys(num_kv_heads, monkeypatch):
    monkeypatch.setattr("seqattn.ops.longest", lambda *_: 0)
    monkeypatch.setattr("seqattn.ops.tiles_are_quicker", lambda kind, keys: False)
    given = []
    real_attention = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda q, k, v, **options: given.append((k, v)) or real_attention(q, k, v, **options),
    )
    attention = make_attention(heads(HEADS, num_kv_heads))
    x = torch.randn(B, T, DIM)
    attend(attention, x, x, full_mask(REAL))
    ((keys, values),) = given
    for part in (keys, values):
        assert part.untyped_storage().nbytes() == B * num_kv_heads * T * HEAD_DIM * 4


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "text"),
    [
        (5, 5, "num_heads must divide model.dim (24), got 5"),
        (4, 3, "num_kv_heads must divide num_heads (4), got 3"),
        (4, 8, "num_kv_heads must divide num_heads (4), got 8"),
    ],
)
def test_head_counts_that_do_not_divide_are_refused_in_words(num_heads, num_kv_heads, text):
    with pytest.raises(UserError) as caught:
        made_of_settings(heads(num_heads, num_kv_heads))(query_dim=DIM, memory_dim=DIM)
    assert str(caught.value) == text


def test_a_kernel_without_weights_refuses_to_drop_them():
    class Weightless(SoftmaxKernel):
        abilities = replace(SoftmaxKernel.abilities, dropout=False, weights=False)

    factory = partial(MultiHeadAttention, 24, 24, 4, 4, Weightless)
    assert factory(dropout=0.0).abilities is Weightless.abilities
    with pytest.raises(UserError) as caught:
        factory(dropout=0.1)
    assert str(caught.value) == "Weightless has no weights to drop; set attention.dropout=0"


def test_projections_without_bias_have_none():
    attention = heads(bias=False)(query_dim=DIM, memory_dim=DIM)
    assert {name for name, _ in attention.named_parameters()} == {
        "query.weight",
        "key.weight",
        "value.weight",
        "output.weight",
    }


def test_heads_may_have_a_width_of_their_own():
    """Twice the queries' and keys' width of zeros changes nothing but the scale of the scores."""
    narrow = make_attention()
    wide = make_attention(heads(head_dim=2 * HEAD_DIM))
    for part in ("query", "key", "value", "output"):
        ours, theirs = getattr(narrow, part), getattr(wide, part)
        with torch.no_grad():
            weight = ours.weight if part != "output" else ours.weight.T
            padded = torch.zeros(HEADS, 2 * HEAD_DIM, DIM)
            padded[:, :HEAD_DIM] = weight.unflatten(0, (HEADS, HEAD_DIM))
            flat = padded.flatten(0, 1) * (2**0.5 if part == "query" else 1)
            theirs.weight.copy_(flat if part != "output" else flat.T)
            theirs.bias.zero_()
            ours.bias.zero_()
    x = torch.randn(B, T, DIM)
    close(attend(wide, x, x, full_mask(REAL)), attend(narrow, x, x, full_mask(REAL)), 1e-6)


@pytest.mark.parametrize(("kernel", "groups"), [(SoftmaxKernel, 2), (LSHKernel, HEADS)])
def test_queries_and_keys_are_normalized_head_by_head(kernel, groups):
    factory = partial(
        MultiHeadAttention, num_heads=HEADS, num_kv_heads=groups, kernel=kernel, qk_norm=True
    )
    attention = make_attention(factory).double()
    x = torch.randn(B, T, DIM, dtype=torch.float64)
    mask, seen = full_mask(torch.ones(B, T, dtype=torch.bool)), []
    attention.kernel.register_forward_pre_hook(lambda _, args: seen.extend(args[:2]))
    attention.mix(x, mask, Position(Stack(DIM, HEADS)))
    q, keys, _ = seen[0], *seen[1]
    if attention.query is None:
        assert attention.query_norm is None
        assert torch.equal(q, keys)
    pairs = (attention.key, attention.key_norm, keys), (attention.query, attention.query_norm, q)
    for projection, norm, got in pairs[: 1 + (attention.query is not None)]:
        rows = projection(x).unflatten(2, (-1, HEAD_DIM)).transpose(1, 2)
        size = (rows.square().sum(-1, keepdim=True) / HEAD_DIM + 1e-6).sqrt()
        assert norm.weight.shape == (HEAD_DIM,)
        torch.testing.assert_close(got, rows / size * norm.weight, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["mha", "gqa", "sliding_window", "linear"])
def test_normalized_heads_work_under_autocast_and_compiled(name):
    factory = partial(load_choice("attention", name), qk_norm=True)
    attention, x = make_attention(factory), torch.randn(B, T, DIM)
    position, mask = Position(Stack(DIM, HEADS)), causal_mask(REAL)
    exact = attention.mix(x, mask, position)
    with torch.autocast("cpu", torch.bfloat16):
        rough = attention.mix(x, mask, position)
        assert {part.dtype for part in attention.project(x)} == {torch.bfloat16}
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)
    compiled = torch.compile(attention.mix, fullgraph=True, backend="eager")
    close(compiled(x, mask, position), exact)


def test_cross_attention_normalizes_as_self_attention_does():
    cross = cross_default(heads(num_kv_heads=2, qk_norm=True))
    assert make_attention(cross).key_norm is not None
    assert make_attention(cross_default(heads(num_kv_heads=2))).key_norm is None
