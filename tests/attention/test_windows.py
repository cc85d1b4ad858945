"""Sliding windows and streaming against sets spelled out row by row, Longformer, and each other."""

import pytest
import torch
import torch.nn.functional as F
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.layouts import SMALLEST, Band
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.streaming import StreamingKernel
from seqattn.attention.kernels.window import SlidingWindowKernel
from seqattn.attention.masks import Mask
from tests.attention.local import (
    LEANING,
    NOWHERE,
    ROPE,
    SCHEMES,
    assert_equal_in_value_and_gradient,
    decoded,
    inputs,
    plain,
    run,
    spelled_out,
)
from tests.builders import DIM, HEAD_DIM, HEADS
from tests.operations import Largest
from tests.pages import program
from tests.tolerance import close

window_keys = program("arithmetic.py").window_keys
"""The set as section 3.1 of Longformer's paper has it."""
streaming_keys = program("arithmetic.py").streaming_keys
"""The tokens in the cache in order, as section 3.2 of the paper of streaming has them."""
LONG = 3 * SMALLEST + 9  # several blocks, the last one not full
BY_SCHEME = pytest.mark.parametrize("position", SCHEMES, ids=lambda scheme: type(scheme).__name__)


def sliding(window, global_tokens=0, groups=2, dropout=0.0):
    shape = HeadShape(HEADS, groups, HEAD_DIM, dropout)
    return SlidingWindowKernel(shape, window=window, global_tokens=global_tokens)


def streaming(sinks, window):
    return StreamingKernel(HeadShape(HEADS, 2, HEAD_DIM), sinks=sinks, window=window)


def reference(make, sizes, tensors, position=NOWHERE, causal=True):
    """Context and weights, one query at a time."""

    def seen(i):
        if make is sliding:
            return window_keys(i, tensors[0].shape[2], *sizes, causal)
        return streaming_keys(i, *sizes)

    def place(i, j):
        within = seen(i)
        return j + within.index(i) - within.index(j)  # j where it is, i as far off as in the cache

    return spelled_out(tensors, seen, position, *([] if make is sliding else [place]))


def full_passes():
    """Test parameters: every position with one pair of sizes, the first with all; others later."""
    windows = ((1, 0), (5, 0), (5, 3), (2, 40), (23, 1), (7, 3))
    cases = [(sliding, sizes, causal) for sizes in windows for causal in (True, False)]
    cases += [(streaming, sizes, True) for sizes in ((4, 7), (0, 1), (0, 6), (1, 1), (35, 3))]
    for make, sizes, causal in cases:
        for scheme in SCHEMES:
            is_tried = scheme is SCHEMES[0] or sizes in ((7, 3), (4, 7))
            name = f"{make.__name__}-{sizes}-{causal}-{type(scheme).__name__}"
            marks = () if is_tried else pytest.mark.exhaustive
            yield pytest.param(make, sizes, causal, scheme, marks=marks, id=name)


@pytest.mark.parametrize(("make", "sizes", "causal", "position"), full_passes())
def test_a_full_pass_sees_its_sets_in_value_gradient_and_weights(make, sizes, causal, position):
    tensors, block, maps = inputs(LONG), make(*sizes), []
    after = 0 if causal else block.keys_after
    assert Band.cover(LONG, block.keys_before, after, block.first).size < LONG
    block.observers = (maps.append,)
    got = run(block, tensors, plain(LONG, causal), position)
    expected, weights = reference(make, sizes, tensors, position, causal)
    assert_equal_in_value_and_gradient(got, expected, tensors)
    close(maps[0].double(), weights)
    assert ((maps[0] > 0) == (weights > 0)).all()


@pytest.mark.parametrize(
    ("block", "causal"),
    [(sliding(w), causal) for w in (LONG - 1, 4 * LONG) for causal in (True, False)]
    + [(streaming(4, LONG), True)],
    ids=["sliding", "sliding-both-sides", "sliding-far", "sliding-far-both-sides", "streaming"],
)
@BY_SCHEME
def test_a_window_as_long_as_the_sequence_equals_full_attention(block, causal, position):
    tensors, mask = inputs(LONG), plain(LONG, causal)
    expected = run(SoftmaxKernel(HeadShape(HEADS, 2, HEAD_DIM)), tensors, mask, position)
    assert_equal_in_value_and_gradient(
        run(block, tensors, mask, position), expected.double(), tensors
    )


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(sliding, (4, 0)), (sliding, (4, 3)), *[(streaming, x) for x in ((0, 3), (2, 1), (3, 5))]],
)
@BY_SCHEME
@pytest.mark.parametrize("cuts", [[1] * 29, [29], [2, 1, 15, 1, 10]])
@torch.no_grad()
def test_the_rolling_cache_gives_one_causal_pass(make, sizes, cuts, position):
    tensors, block, maps = inputs(29), make(*sizes), []
    expected, weights = reference(make, sizes, tensors, position)
    block.observers = (maps.append,)
    close(decoded(block, tensors, cuts, position).double(), expected)
    seen = [F.pad(row, (0, 29 - row.shape[3])) for row in maps]
    close(torch.cat(seen, dim=2).double(), weights)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("first", [0, 3])
def test_padding_anywhere_moves_no_real_token(first, causal):
    real = torch.ones(2, LONG, dtype=torch.bool)
    real[0, :7] = real[0, 50:53] = real[0, -20:] = False
    real[1, 11:] = False
    tensors, block = inputs(LONG), sliding(6, first)
    together = run(block, tensors, plain(LONG, causal, real), ROPE)
    for row in range(2):
        alone = [x[row : row + 1, :, real[row]] for x in tensors]
        expected = run(block, alone, plain(int(real[row].sum()), causal), ROPE)
        close(together[row : row + 1, :, real[row]], expected)
    gradients = torch.autograd.grad(together[:, :, real.all(dim=0)].sum(), tensors)
    for gradient in gradients[1:]:
        assert (gradient.transpose(1, 2)[~real] == 0).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_of_your_own_is_joined(heads, causal, padded):
    tensors, block = inputs(LONG), sliding(6, 2)
    extra = torch.rand(2, heads, LONG, LONG) < 0.6
    extra[:, :, 40] = False  # a query with nothing to look at
    real = torch.ones(2, LONG, dtype=torch.bool)
    real[:, :5] = not padded
    got = run(block, tensors, plain(LONG, causal, real, extra))
    near = torch.zeros(LONG, LONG, dtype=torch.bool)
    skipped = 5 if padded else 0
    for i in range(skipped, LONG):
        row = window_keys(i - skipped, LONG - skipped, 6, 2, causal)
        near[i, [j + skipped for j in row]] = True
    dense = Mask(torch.arange(LONG), torch.arange(LONG), real, extra=extra & near)
    expected = run(SoftmaxKernel(HeadShape(HEADS, 2, HEAD_DIM)), tensors, dense)
    assert (got[:, :, 40] == 0).all()
    close(got[:, :, skipped:], expected[:, :, skipped:])


@pytest.mark.parametrize("causal", [True, False])
def test_the_context_made_of_kept_weights_is_the_same_and_lets_a_gradient_reach_them(causal):
    tensors, block = inputs(LONG), sliding(6, 2)
    real = torch.ones(2, LONG, dtype=torch.bool)
    real[0, :7] = False
    mask = plain(LONG, causal, real)
    fast = run(block, tensors, mask)
    maps = []
    block.observers, block.edits = (maps.append,), (lambda weights, visible: weights,)
    context = run(block, tensors, mask)
    close(context.transpose(1, 2)[real], fast.transpose(1, 2)[real])
    upstream = torch.randn_like(context) * real[:, None, :, None]
    gradient, *kept = torch.autograd.grad((context * upstream).sum(), (maps[0], *tensors))
    expected = upstream @ tensors[2].repeat_interleave(2, dim=1).mT
    seen = maps[0] > 0
    close(gradient[seen], expected[seen])
    for one, other in zip(kept, torch.autograd.grad((fast * upstream).sum(), tensors)):
        close(one, other, bound=5e-5)


@pytest.mark.parametrize("first", [0, 3])
@torch.no_grad()
def test_memory_of_the_cache_stops_growing_at_the_window_and_the_globals(first):
    block = sliding(7, first)
    cache, held = block.make_cache(1), []
    tensors = inputs(40, rows=1)
    for t in range(40):
        places = torch.arange(t + 1)
        run(block, [x[:, :, t : t + 1] for x in tensors], Mask(places[t:], places), cache=cache)
        held.append(cache.nbytes)
    token = 2 * 2 * HEAD_DIM * 4
    assert held == [min(t + 1, 7 + 1 + first) * token for t in range(40)]


@torch.no_grad()
def test_an_edit_in_decoding_is_told_of_every_key_that_a_row_with_padding_sees():
    block, tensors, told = sliding(2, 1), inputs(7), []
    real = torch.ones(2, 7, dtype=torch.bool)
    real[0, 2:4] = False
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    cache = block.make_cache(1)
    for start, end in ((0, 4), (4, 5), (5, 7)):
        mask = Mask(places[:, start:end], places[:, :end], real[:, :end], causal=True)
        run(block, [x[:, :, start:end] for x in tensors], mask, cache=cache)
        block.edits = (lambda weights, visible: told.append((weights, visible)) or weights,)
    for weights, visible in told:
        assert torch.equal(visible.expand_as(weights), weights > 0)


@pytest.mark.parametrize("global_tokens", [0, 3])
def test_it_equals_longformer_with_copied_weights(global_tokens):
    length, reach = 48, 4
    config = LongformerConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        attention_window=[2 * reach],
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    theirs = LongformerSelfAttention(config, layer_id=0).eval()
    ours = MultiHeadAttention(
        DIM, DIM, HEADS, HEADS, lambda shape: sliding(reach, global_tokens, HEADS)
    )
    with torch.no_grad():
        for name in ("query", "key", "value"):
            parameters = getattr(ours, name).state_dict()
            parameters["bias"] += torch.randn(DIM)
            getattr(theirs, name).load_state_dict(parameters)
            getattr(theirs, f"{name}_global").load_state_dict(parameters)
        ours.output.weight.copy_(torch.eye(DIM))
    x = torch.randn(2, length, DIM)
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, 40:] = False
    kind = torch.zeros(2, length).masked_fill(~real, -10000.0)  # masked, local, global: - 0 +
    kind[:, :global_tokens] = 10000.0
    (expected,) = theirs(
        x,
        attention_mask=kind,
        is_index_masked=kind < 0,
        is_index_global_attn=kind > 0,
        is_global_attn=bool(global_tokens),
    )[:1]
    got = ours(x, ours.project(x), plain(length, False, real), NOWHERE).output
    close(got[real], expected[real])


def test_no_tensor_of_a_pass_is_as_large_as_n_by_n():
    length = 4096
    tensors = inputs(length, rows=1)
    for causal in (True, False):
        for position in (NOWHERE, ROPE):
            with Largest() as largest:
                run(sliding(16, 2), tensors, plain(length, causal), position).sum().backward()
            assert largest.numbers < length * length / 8


def test_a_mask_of_your_own_is_refused_in_decoding():
    block, extra = sliding(3), torch.ones(1, 1, 1, 1, dtype=torch.bool)
    with pytest.raises(AssertionError):
        run(block, inputs(1), plain(1, extra=extra), cache=block.make_cache(1))


@pytest.mark.parametrize("position", [NOWHERE, LEANING], ids=lambda scheme: type(scheme).__name__)
def test_dropout_drops_weights_in_training_alone(position):
    tensors, block = inputs(LONG, groups=4, rows=4), sliding(5, groups=4, dropout=0.5)
    expected = run(sliding(5, groups=4), tensors, plain(LONG), position)
    torch.testing.assert_close(run(block.eval(), tensors, plain(LONG), position), expected)
    moved = run(block.train(), tensors, plain(LONG), position) - expected
    assert moved.std() > 0.1
    torch.testing.assert_close(moved.mean(), torch.tensor(0.0), atol=0.3, rtol=0)


@pytest.mark.parametrize("position", [ROPE, LEANING], ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("pieces", [((0, 3), (3, 8), (8, 14)), ((0, 3), (3, 14))])
@torch.no_grad()
def test_rows_with_padding_before_and_between_stream_as_each_would_alone(position, pieces):
    block, sinks = streaming(3, 4), torch.ones(2, 14, dtype=torch.bool)
    real = sinks.clone()
    real[0, :2] = real[0, 5:7] = real[1, 9] = False
    tensors, cache = inputs(20), block.make_cache(1)
    real = torch.cat((real, torch.ones(2, 6, dtype=torch.bool)), dim=1)
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    outputs = []
    for start, end in (*pieces, *((t, t + 1) for t in range(14, 20))):
        mask = Mask(places[:, start:end], places[:, :end], real[:, :end], causal=True)
        piece = [x[:, :, start:end] for x in tensors]
        outputs.append(run(block, piece, mask, position, cache))
    got = torch.cat(outputs, dim=2)
    for row in range(2):
        alone = [x[row : row + 1, :, real[row]] for x in tensors]
        expected, _ = reference(streaming, (3, 4), alone, position)
        close(got[row : row + 1, :, real[row]].double(), expected)


@torch.no_grad()
def test_thousands_of_tokens_keep_constant_memory_and_small_positions():
    block, largest = streaming(4, 12), []

    class Watched(type(ROPE)):
        def rotate(self, x, positions):
            largest.append(int(positions.max()))
            return super().rotate(x, positions)

    position, cache = Watched(ROPE.stack), block.make_cache(1)
    tensors = inputs(2000, rows=1)
    places = torch.arange(2000)
    for t in range(2000):
        mask = Mask(places[t : t + 1], places[: t + 1], causal=True)
        last = run(block, [x[:, :, t : t + 1] for x in tensors], mask, position, cache)
        assert cache.nbytes == min(t + 1, 16) * 2 * 2 * HEAD_DIM * 4
    assert max(largest) == 15
    expected = run(block, tensors, plain(2000), ROPE)[:, :, -1:]
    close(last, expected, bound=5e-5)


def test_it_fits_a_decoder_alone():
    abilities = streaming(2, 3).abilities
    fits = [slot for slot in ("encoder", "decoder", "cross") if abilities.fits(slot)]
    assert fits == ["decoder"]
    torch.testing.assert_close(
        run(streaming(0, 1), tensors := inputs(5), plain(5), NOWHERE),
        tensors[2].repeat_interleave(2, dim=1),
    )
