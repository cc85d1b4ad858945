"""LSH attention against its definition by loops, full attention and Reformer's own layer."""

from functools import partial

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.lsh import LSHKernel, bucket_ids, random_rotations
from seqattn.errors import UserError
from seqattn.positions import Position, Stack
from tests.builders import HEAD_DIM, HEADS, full_mask, heads, make_attention
from tests.pages import program
from tests.tolerance import close

hashed_keys = program("arithmetic.py").hashed_keys
B, T, SIZE = 2, 17, 3
NOWHERE = Position(Stack(HEADS * HEAD_DIM, HEADS))
EVERYONE = torch.ones(B, T, dtype=torch.bool)
RAGGED = EVERYONE.clone()
RAGGED[1, :3] = RAGGED[1, -2:] = False


def made(rounds=2, dropout=0.0, **options):
    shape = HeadShape(HEADS, HEADS, HEAD_DIM, dropout)
    return LSHKernel(shape, **{"bucket_size": SIZE, "rounds": rounds, **options}).double()


def inputs(length=T, width=HEAD_DIM, scale=2.0):
    x, values = (torch.randn(B, HEADS, length, n, dtype=torch.float64) for n in (HEAD_DIM, width))
    return (scale * x).requires_grad_(), values.requires_grad_()


def attend(kernel, x, values, mask):
    return kernel(x, KeysValues(x, values), mask, NOWHERE).context


def found(kernel, x, real):
    """allowed (B, H, T, T), from the kernel's bucket ids, chunk by chunk in lists."""
    size = kernel.bucket_size
    buckets = bucket_ids(x, real, kernel.rotations, size)
    allowed = torch.zeros(*x.shape[:3], x.shape[2], dtype=torch.bool)
    for ids in buckets:
        for b in range(x.shape[0]):
            tokens = real[b].nonzero()[:, 0]
            for h in range(HEADS):
                seen = hashed_keys(ids[b, h, tokens].tolist(), size)
                for query, keys in zip(tokens, seen):
                    allowed[b, h, query, tokens[keys]] = True
    return allowed


def over_keys(x, allowed):
    """Softmax over the allowed keys, a token itself only where there is no other."""
    unit = x / x.norm(dim=-1, keepdim=True)
    other = allowed & ~torch.eye(x.shape[2], dtype=torch.bool)
    allowed = torch.where(other.any(-1, keepdim=True), other, allowed)
    power = (x @ unit.transpose(2, 3)).exp() * allowed
    return power / power.sum(-1, keepdim=True).clamp(min=1e-300)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("real", [EVERYONE, RAGGED])
def test_it_equals_the_definition_made_from_its_own_buckets(rounds, real):
    kernel = made(rounds)
    x, values = inputs()
    got = attend(kernel, x, values, full_mask(real))
    allowed = found(kernel, x, real)
    assert not allowed[0].all()
    expected = over_keys(x, allowed) @ values
    rows = real[:, None, :, None]
    torch.testing.assert_close(got * rows, expected * rows)
    upstream = torch.randn_like(got) * rows
    ours = torch.autograd.grad((got * upstream).sum(), (x, values))
    theirs = torch.autograd.grad((expected * upstream).sum(), (x, values))
    torch.testing.assert_close(ours, theirs)


def test_observed_weights_are_the_definitions_and_change_no_output():
    kernel = made(3)
    x, values = inputs()
    before = attend(kernel, x, values, full_mask(RAGGED))
    maps = []
    kernel.observers = (maps.append,)
    assert torch.equal(attend(kernel, x, values, full_mask(RAGGED)), before)
    expected = over_keys(x, found(kernel, x, RAGGED))
    rows = RAGGED[:, None, :, None]
    torch.testing.assert_close(maps[0] * rows, expected * rows)
    assert torch.equal((maps[0] > 0) & rows, (expected > 0) & rows)
    kernel.edits = (lambda weights, visible: weights,)
    context = attend(kernel, x, values, full_mask(RAGGED))
    torch.testing.assert_close(context, before)
    (gradient,) = torch.autograd.grad(context.sum(), maps[1])
    torch.testing.assert_close(gradient, values.sum(-1)[:, :, None].expand_as(gradient))


def test_the_error_to_full_attention_falls_as_rounds_grow():
    x, values = inputs(length=96)
    mask = full_mask(torch.ones(B, 96, dtype=torch.bool))
    full = over_keys(x, torch.ones(B, HEADS, 96, 96, dtype=torch.bool)) @ values
    errors = []
    for rounds in (1, 2, 4, 8, 32):
        kernel = made(rounds, bucket_size=4)
        errors.append((attend(kernel, x, values, mask) - full).square().mean().sqrt().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.7 * errors[0]
    assert errors[4] < 0.2 * errors[0]


@pytest.mark.parametrize("length", [2, SIZE, SIZE + 1, 2 * SIZE])
def test_up_to_two_chunks_are_full_attention(length):
    x, values = inputs(length)
    everything = torch.ones(B, HEADS, length, length, dtype=torch.bool)
    expected = over_keys(x, everything) @ values
    got = attend(made(), x, values, full_mask(torch.ones(B, length, dtype=torch.bool)))
    torch.testing.assert_close(got, expected)


def test_a_token_sees_itself_only_where_it_sees_nothing_else():
    x, values = inputs(length=1)
    alone = attend(made(), x, values, full_mask(torch.ones(B, 1, dtype=torch.bool)))
    assert torch.equal(alone, values)
    x, values = inputs()
    kernel, maps = made(3), []
    kernel.observers = (maps.append,)
    attend(kernel, x, values, full_mask(EVERYONE))
    assert (maps[0].diagonal(dim1=2, dim2=3) == 0).all()


def test_a_users_mask_is_honored():
    kernel = made(2)
    x, values = inputs()
    extra = torch.rand(B, 1, T, T) < 0.6
    extra[0, 0, 4] = False  # nothing to see
    extra[0, 0, 5] = torch.arange(T) == 5  # itself alone
    got = attend(kernel, x, values, full_mask(RAGGED).with_extra(extra))
    allowed = found(kernel, x, RAGGED) & extra
    expected = over_keys(x, allowed) @ values
    rows = RAGGED[:, None, :, None]
    torch.testing.assert_close(got * rows, expected * rows)
    assert (got[0, :, 4] == 0).all()
    torch.testing.assert_close(got[0, :, 5], values[0, :, 5])
    gradients = torch.autograd.grad(got.square().sum(), (x, values))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("length", "buckets"), [(5, 1), (6, 2), (11, 2), (12, 4), (24, 8), (95, 16), (96, 32)]
)
def test_a_bucket_is_the_nearest_axis_and_their_number_follows_the_real_length(length, buckets):
    x, _ = inputs(length + 7)
    real = torch.zeros(B, length + 7, dtype=torch.bool)
    real[0, 3 : 3 + length] = real[1, 7:] = True
    rotations = random_rotations(2, HEADS, HEAD_DIM, seed=3).double()
    got = bucket_ids(x, real, rotations, 6)
    expected = torch.zeros_like(got)
    if buckets > 1:
        rotated = torch.einsum("bhtd,rhdc->rbhtc", x, rotations[:, 0, ..., : buckets // 2])
        expected = torch.cat((rotated, -rotated), dim=-1).argmax(-1)
    rows = real[:, None].expand_as(got)
    assert torch.equal(got[rows], expected[rows])
    assert (got[~rows] > got[rows].max()).all()


def test_many_buckets_are_pairs_of_two_rotations():
    x, _ = inputs(512)
    rotations = random_rotations(1, HEADS, HEAD_DIM, seed=3).double()
    got = bucket_ids(x, torch.ones(B, 512, dtype=torch.bool), rotations, 4)  # 2^8 buckets
    rotated = torch.einsum("bhtd,fhdc->fbhtc", x, rotations[0, ..., :8])
    first, second = torch.cat((rotated, -rotated), dim=-1).argmax(-1)
    assert torch.equal(got[0], first + 16 * second)
    assert len(got.unique()) > 100


def test_the_seed_decides_the_rotations():
    assert torch.equal(made(seed=1).rotations, made(seed=1).rotations)
    assert not torch.equal(made(seed=1).rotations, made(seed=2).rotations)


def test_no_tensor_that_is_kept_grows_as_the_square_of_the_length():
    largest = []
    for length in (64, 128, 256):
        x, values = inputs(length)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda part, sizes=sizes: sizes.append(part.numel()) or part, lambda part: part
        ):
            attend(made(), x, values, full_mask(torch.ones(B, length, dtype=torch.bool)))
        largest.append(max(sizes))
    assert largest[0] < B * HEADS * 64 * 64
    assert largest[2] <= 4.4 * largest[0]


@pytest.mark.parametrize("length", [SIZE, T])
def test_dropped_weights_are_scaled_and_the_observed_ones_are_the_true_ones(length):
    kernel, maps = made(3, dropout=0.4), []
    kernel.observers = (maps.append,)
    x, _ = inputs(length)
    mask = full_mask(torch.ones(B, length, dtype=torch.bool))
    identity = torch.eye(length).double().expand(B, HEADS, -1, -1)  # whose context is the weights
    dropped = attend(kernel, x, identity, mask)
    true = attend(kernel.eval(), x, identity, mask)
    torch.testing.assert_close(maps[0], true)
    kept = dropped != 0
    assert 0.4 < kept.sum() / (true > 0).sum() < 0.8
    close(dropped[kept], true[kept] / 0.6, bound=1e-4)  # a share is kept to 1/65536


def test_one_round_equals_reformers_own_layer():
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = reformer.ReformerConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        attention_head_size=HEAD_DIM,
        lsh_attn_chunk_length=SIZE,
        num_hashes=1,
        num_buckets=8,
        hash_seed=5,
        lsh_attention_probs_dropout_prob=0.0,
        is_decoder=False,
    )
    layer = reformer.LSHSelfAttention(config, layer_idx=0).eval().double()
    torch.nn.init.normal_(layer.query_key.weight)  # as it starts, all scores are near 0
    ours = make_attention(heads_with_lsh()).double()
    length = 5 * SIZE
    with torch.no_grad():
        ours.key.weight.copy_(layer.query_key.weight)
        ours.value.weight.copy_(layer.value.weight)
        for projection in (ours.key, ours.value, ours.output):
            projection.bias.zero_()
        ours.output.weight.copy_(torch.eye(HEADS * HEAD_DIM))
        torch.manual_seed(config.hash_seed)
        rotations = torch.randn(HEADS, HEAD_DIM, 1, 4, dtype=torch.float64)
        ours.kernel.rotations[0, 0, :, :, :4] = rotations[:, :, 0]
    x, upstream = torch.randn(2, B, length, HEADS * HEAD_DIM, dtype=torch.float64)
    x.requires_grad_()
    theirs = layer(x).hidden_states
    mask = full_mask(torch.ones(B, length, dtype=torch.bool))
    got = ours(x, ours.project(x), mask, NOWHERE).output
    close(got, theirs)  # whose norms have 1e-6 more
    expected = torch.autograd.grad((theirs * upstream).sum(), x)
    gradient = torch.autograd.grad((got * upstream).sum(), x)
    close(gradient[0], expected[0])


def heads_with_lsh(num_kv_heads=HEADS):
    factory = heads(HEADS, num_kv_heads)
    factory.keywords["kernel"] = partial(LSHKernel, bucket_size=SIZE, rounds=1)
    return factory


def test_it_makes_one_projection_of_queries_and_keys_and_needs_as_many_key_heads():
    assert make_attention(heads_with_lsh()).query is None
    with pytest.raises(UserError) as caught:
        make_attention(heads_with_lsh(num_kv_heads=2))
    assert str(caught.value) == (
        "num_kv_heads must equal num_heads (4), as LSHKernel shares queries and keys, got 2"
    )
