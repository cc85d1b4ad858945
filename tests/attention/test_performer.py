"""The Performer's random features: how near to the softmax, and what their maximum may see."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.features import (
    PerformerKernel,
    orthogonal_draw,
    plain_features,
    positive_features,
)
from seqattn.attention.masks import Mask
from seqattn.positions import Position, RotaryPosition, Stack
from tests.tolerance import close

B, H, T, DH = 2, 4, 9, 6
NOWHERE = Position(Stack(H * DH, H))
PLACES = torch.arange(T)
CAUSAL = Mask(PLACES, PLACES, causal=True)


def inputs(heads=H, **options):
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(B, heads, T, DH, generator=draw, **options) for _ in range(3)]


def in_pieces(kernel, q, k, v, cuts=(1,) * T):
    cache, out, start = kernel.make_cache(beams=1), [], 0
    for cut in cuts:
        end = start + cut
        mask = Mask(PLACES[start:end], PLACES[:end], causal=True)
        query, key, value = (x[:, :, start:end] for x in (q, k, v))
        out.append(kernel(query, KeysValues(key, value), mask, NOWHERE, cache).context)
        start = end
    return torch.cat(out, dim=2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", [NOWHERE, RotaryPosition(Stack(H * DH, H))])
def test_its_error_to_the_softmax_falls_as_features_grow(causal, position):
    q, k, v = inputs(dtype=torch.float64)
    q, k = q / 3, k / 3
    mask = Mask(PLACES, PLACES, causal=causal)
    turned = (position.rotate(x, PLACES) for x in (q, k))
    exact = F.scaled_dot_product_attention(*turned, v, is_causal=causal)
    errors = []
    for features in (24, 96, 384, 1536):
        kernels = [
            PerformerKernel(HeadShape(H, H, DH), features=features, seed=s).double()
            for s in range(20)
        ]
        found = [kernel(q, KeysValues(k, v), mask, position).context for kernel in kernels]
        errors.append(torch.stack([(one - exact).square().mean() for one in found]).mean().sqrt())
    falls = [before / after for before, after in itertools.pairwise(errors)]
    assert all(1.6 < fall < 2.6 for fall in falls), falls  # 2 by theory, for 4 times the features
    blunt = (
        PerformerKernel(HeadShape(H, H, DH))
        .double()(q * 0, KeysValues(k * 0, v), mask, NOWHERE)
        .context
    )
    assert errors[-1] < 0.25 * (blunt - exact).square().mean().sqrt()


def test_the_scale_of_scores_is_the_positions():
    class Unscaled(Position):
        def score_scale(self, head_dim):
            return 1.0

    q, k, v = (x / 3 for x in inputs(dtype=torch.float64))
    kernel = PerformerKernel(HeadShape(H, H, DH), features=6000).double()
    found = kernel(q, KeysValues(k, v), CAUSAL, Unscaled(Stack(H * DH, H))).context
    exact = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    torch.testing.assert_close(found, exact, atol=0.03, rtol=0.0)


@pytest.mark.parametrize("scale", [0.0, 0.4])
def test_its_features_and_their_gradient_are_the_plain_ones(scale):
    x = torch.randn(B, H, T, DH, dtype=torch.float64, requires_grad=True)
    directions = orthogonal_draw(15, DH, seed=0).double()
    ours, plain = (make(x, directions, scale) for make in (positive_features, plain_features))
    torch.testing.assert_close(ours, plain)
    assert not ours[1].requires_grad
    torch.testing.assert_close(ours[0].amax(dim=-1), torch.ones(B, H, T).double())
    torch.testing.assert_close(ours[1], (x @ directions.T).amax(dim=-1).detach())
    upstream = torch.randn_like(plain[0])
    gradients = [torch.autograd.grad((one[0] * upstream).sum(), x)[0] for one in (ours, plain)]
    torch.testing.assert_close(*gradients)


def test_directions_are_orthogonal_within_a_block_and_as_long_as_normal_vectors():
    draw = orthogonal_draw(15, DH, seed=3).double()
    for block in draw.split(DH):
        products = block @ block.T
        lengths = products.diagonal()
        close(products, lengths.diag(), bound=1e-6)  # rounded to float32
    assert draw.shape == (15, DH)
    many = orthogonal_draw(60000, DH, seed=0).double()
    squares = many.square().sum(1)
    assert squares.mean().item() == pytest.approx(DH, rel=0.02)  # chi-squared of Dh
    assert squares.var().item() == pytest.approx(2 * DH, rel=0.05)
    torch.testing.assert_close(many.mean(0), torch.zeros(DH).double(), atol=0.02, rtol=0.0)
    x, y = torch.randn(2, DH, generator=torch.Generator().manual_seed(1)).double() / 2
    estimate = ((many @ (x + y)) - (x.square().sum() + y.square().sum()) / 2).exp().mean()
    assert estimate.item() == pytest.approx((x @ y).exp().item(), rel=0.02)


def test_the_draw_is_the_seeds_and_travels_with_the_weights():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (PerformerKernel(HeadShape(H, H, DH), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)  # building draws nothing from the global source
    assert torch.equal(one.projection, same.projection)
    assert not torch.equal(one.projection, other.projection)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.projection, other.projection)


@pytest.mark.parametrize("size", [1e-3, 30.0, 1e4])
@pytest.mark.parametrize("chunk", [2, 4, 64])
def test_later_keys_of_any_size_change_nothing(size, chunk):
    kernel = PerformerKernel(HeadShape(H, H, DH), chunk=chunk, features=16)
    q, k, v = inputs()
    for start in (1, 5, T - 1):
        changed_k, changed_v = k.clone(), v.clone()
        changed_k[:, :, start:] = size
        changed_v[:, :, start:] *= -size
        before = kernel(q, KeysValues(k, v), CAUSAL, NOWHERE).context
        after = kernel(q, KeysValues(changed_k, changed_v), CAUSAL, NOWHERE).context
        close(after[:, :, :start], before[:, :, :start])
        assert after.isfinite().all()


@pytest.mark.parametrize("chunk", [2, 4, 64])
def test_a_key_that_small_ones_follow_is_still_all_that_its_own_query_sees(chunk):
    kernel = PerformerKernel(HeadShape(H, H, DH), chunk=chunk, features=16)
    q, k, v = inputs()
    k[:, :, :4] *= 1e3  # exp(-|k|^2/2) is 0 in float32 there, beside the keys that follow
    k.requires_grad_()
    out = kernel(q, KeysValues(k, v), CAUSAL, NOWHERE).context
    close(out[:, :, 0], v[:, :, 0])
    for cuts in ((1,) * T, (3, 1, 5)):
        pieces = in_pieces(kernel, q, k, v, cuts)
        close(pieces, out)
    (gradient,) = torch.autograd.grad(out.square().sum(), k)
    assert gradient.isfinite().all()
    assert (gradient[:, :, 4:-1].abs().amax(3) > 0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [0.0, 1e4])
def test_padding_of_any_size_changes_nothing(causal, size):
    kernel = PerformerKernel(HeadShape(H, H, DH), chunk=4, features=16).double()
    q, k, v = inputs(dtype=torch.float64)  # float32 would round exponents of thousands
    k = k * 40  # far from padding at 0, whose features would be the largest
    real = torch.tensor([[0, 1, 1, 1, 0, 0, 1, 1, 0]] * B, dtype=torch.bool)
    mask = Mask(PLACES, PLACES, real, causal)
    k[:, :, ~real[0]] = size
    k.requires_grad_()
    padded = kernel(q, KeysValues(k, v), mask, NOWHERE).context[:, :, real[0]]
    (gradient,) = torch.autograd.grad(padded.square().sum(), k)
    q, k, v = (x[:, :, real[0]] for x in (q, k, v))
    places = torch.arange(q.shape[2])
    alone = kernel(q, KeysValues(k, v), Mask(places, places, None, causal), NOWHERE).context
    torch.testing.assert_close(padded, alone)
    assert (gradient[:, :, ~real[0]] == 0).all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_queries_and_keys_of_wild_sizes_overflow_nowhere(dtype, causal):
    kernel = PerformerKernel(HeadShape(H, H, DH), chunk=2, features=16).to(dtype)
    sizes = torch.tensor([300.0, 1e-3, 1.0, 40.0, 300.0, 0.0, 5.0, 100.0, 1e-2])[:, None]
    q, k, v = inputs()
    q, k, v = (
        (x * s).to(dtype).requires_grad_() for x, s in ((q, sizes.flip(0)), (k, sizes), (v, 1))
    )
    out = kernel(q, KeysValues(k, v), Mask(PLACES, PLACES, causal=causal), NOWHERE).context
    assert (out.abs() <= v.abs().amax() * 1.01).all()  # weights are shares
    ones = KeysValues(k, torch.ones_like(v))
    sums = kernel(q, ones, Mask(PLACES, PLACES, causal=causal), NOWHERE).context
    torch.testing.assert_close(sums, torch.ones_like(sums))
    out.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    if causal:
        assert in_pieces(kernel, q, k, v).isfinite().all()
        q, k, v = (x.detach().double() for x in (q, k, v))  # with such exponents, to compare
        kernel = kernel.double()
        whole = kernel(q, KeysValues(k, v), CAUSAL, NOWHERE).context
        torch.testing.assert_close(in_pieces(kernel, q, k, v), whole)


def test_a_lone_key_that_points_the_other_way_is_seen():
    kernel = PerformerKernel(HeadShape(H, H, DH), features=16)
    q, _, v = (x.requires_grad_() for x in inputs())
    out = kernel(100 * q, KeysValues(-100 * q, v), CAUSAL, NOWHERE).context
    close(out[:, :, 0], v[:, :, 0])
    out.square().sum().backward()
    assert q.grad.isfinite().all()
