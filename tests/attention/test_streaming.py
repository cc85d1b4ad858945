"""Streaming attention against distances spelled out pair by pair, and its cache."""

import pytest
import torch

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.shared.layouts import SMALLEST, Band
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.streaming import StreamingKernel
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
from tests.builders import HEAD_DIM, HEADS
from tests.pages import program
from tests.tolerance import close

LONG = 3 * SMALLEST + 9  # several blocks, the last one not full


def kernel(sinks, window, groups=2, **options):
    return StreamingKernel(
        HeadShape(HEADS, groups, HEAD_DIM), sinks=sinks, window=window, **options
    )


def reference(tensors, sinks, window, position):
    """The tokens in the cache counted one after the other, as section 3.2 of the paper does."""

    def held(i):
        return program("arithmetic.py").streaming_keys(i, sinks, window)

    def place(i, j):
        within = held(i)
        return j + within.index(i) - within.index(j)  # j where it is, i as far off as in the cache

    return spelled_out(tensors, held, position, place)


def full_passes():
    """Test parameters: every position with one pair of sizes, the first with all; others later."""
    for sinks, window in ((4, 7), (0, 1), (0, 6), (1, 1), (35, 3)):
        for scheme in SCHEMES:
            marks = () if sinks == 4 or scheme is SCHEMES[0] else pytest.mark.exhaustive
            name = f"{sinks}-{window}-{type(scheme).__name__}"
            yield pytest.param(sinks, window, scheme, marks=marks, id=name)


@pytest.mark.parametrize(("sinks", "window", "position"), full_passes())
def test_a_full_pass_sees_sinks_and_window_at_the_distances_of_the_cache(sinks, window, position):
    assert Band.cover(LONG, window - 1, 0, sinks).size < LONG
    tensors, block = inputs(LONG), kernel(sinks, window)
    maps = []
    block.observers = (maps.append,)
    got = run(block, tensors, plain(LONG), position)
    expected, weights = reference(tensors, sinks, window, position)
    assert_equal_in_value_and_gradient(got, expected, tensors)
    close(maps[0].double(), weights)


@pytest.mark.parametrize("position", SCHEMES, ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("cuts", [[1] * 29, [29], [2, 1, 15, 1, 10]])
@pytest.mark.parametrize(("sinks", "window"), [(0, 3), (2, 1), (3, 5)])
@torch.no_grad()
def test_the_rolling_cache_gives_the_full_pass(sinks, window, cuts, position):
    tensors, block = inputs(29), kernel(sinks, window)
    expected, weights = reference(tensors, sinks, window, position)
    maps = []
    block.observers = (maps.append,)
    got = decoded(block, tensors, cuts, position)
    close(got.double(), expected)
    last = weights[:, :, -cuts[-1] :]
    close(maps[-1].double(), last)


@pytest.mark.parametrize("position", [ROPE, LEANING], ids=lambda scheme: type(scheme).__name__)
@pytest.mark.parametrize("pieces", [((0, 3), (3, 8), (8, 14)), ((0, 3), (3, 14))])
@torch.no_grad()
def test_rows_with_padding_before_and_between_stream_as_each_would_alone(position, pieces):
    block, sinks = kernel(3, 4), torch.ones(2, 14, dtype=torch.bool)
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
        expected, _ = reference(alone, 3, 4, position)
        close(got[row : row + 1, :, real[row]].double(), expected)


@pytest.mark.parametrize("position", SCHEMES, ids=lambda scheme: type(scheme).__name__)
def test_a_window_as_long_as_the_sequence_equals_full_attention(position):
    tensors, mask = inputs(LONG), plain(LONG)
    got = run(kernel(4, LONG), tensors, mask, position)
    expected = run(SoftmaxKernel(HeadShape(HEADS, 2, HEAD_DIM)), tensors, mask, position)
    assert_equal_in_value_and_gradient(got, expected.double(), tensors)


@torch.no_grad()
def test_thousands_of_tokens_keep_constant_memory_and_small_positions():
    block, largest = kernel(4, 12), []

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
    abilities = kernel(2, 3).abilities
    fits = [slot for slot in ("encoder", "decoder", "cross") if abilities.fits(slot)]
    assert fits == ["decoder"]
    torch.testing.assert_close(
        run(kernel(0, 1), tensors := inputs(5), plain(5), NOWHERE),
        tensors[2].repeat_interleave(2, dim=1),
    )
