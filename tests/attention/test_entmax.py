"""Entmax attention against sorting, the `entmax` package, its limits and finite differences."""

import pytest
import torch
from entmax import entmax_bisect

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels import entmax as module
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.entmax import EntmaxKernel, entmax, plain_entmax
from seqattn.errors import UserError
from tests.attention.rows import NOWHERE, B, S, T, seen_keys
from tests.builders import HEAD_DIM, HEADS
from tests.pages import program
from tests.tolerance import close

by_halving = program("arithmetic.py").entmax
"""One row by plain bisection on the threshold of eq. 4."""
ALPHAS = [1.003, 1.02, 1.2, 1.5, 1.9, 2.0]


def inputs(groups=HEADS, dtype=torch.float32):
    q = torch.randn(B, HEADS, T, HEAD_DIM, dtype=dtype) * 2
    k, v = (torch.randn(B, groups, S, HEAD_DIM, dtype=dtype) for _ in range(2))
    return q, k, v


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_weights_and_context_equal_each_row_worked_out_alone(groups):
    kernel = EntmaxKernel(HeadShape(HEADS, groups, HEAD_DIM))
    with torch.no_grad():
        kernel.logit.copy_(torch.tensor([-2.0, 0.0, 1.0, 5.0]))
    q, k, v = inputs(groups)
    mask, allowed = seen_keys()
    maps = []
    kernel.observers = (maps.append,)
    got = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    for b in range(B):
        for h in range(HEADS):
            for t in range(T):
                seen = allowed[b, t]
                keys, values = k[b, h * groups // HEADS].double(), v[b, h * groups // HEADS]
                expected = torch.zeros(S, dtype=torch.float64)
                if seen.any():
                    scores = keys[seen] @ q[b, h, t].double() / HEAD_DIM**0.5
                    expected[seen] = by_halving(scores, kernel.alpha[h].item())
                row = maps[0][b, h, t]
                close(row.double(), expected)
                assert torch.equal(row == 0, expected == 0)
                context = expected @ values.double()
                close(got[b, h, t].double(), context)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_it_agrees_with_the_entmax_package_in_value_and_gradient(alpha, spread):
    scores = torch.randn(3, 4, 50, dtype=torch.float64) * spread
    upstream = torch.randn_like(scores)
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    alphas = [torch.full((4, 1), alpha, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    weights = entmax(ours, alphas[0])
    expected = entmax_bisect(theirs, alphas[1], n_iter=100)
    torch.testing.assert_close(weights, expected, atol=1e-12, rtol=1e-9)
    got = torch.autograd.grad((weights * upstream).sum(), (ours, alphas[0]))
    wanted = torch.autograd.grad((expected * upstream).sum(), (theirs, alphas[1]))
    for one, other in zip(got, wanted):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 6, 3000])
def test_float32_is_exact_to_rounding_at_every_alpha(size):
    for alpha in (1.0, 1.000001, 1.001, 1.1, 1.5, 1.9, 2.0):
        for spread in (0.0, 0.1, 5.0, 1000.0):
            scores = torch.randn(8, size) * spread
            weights = entmax(scores, torch.tensor(alpha))
            exact = entmax(scores.double(), torch.tensor(alpha).double())
            torch.testing.assert_close(weights.double(), exact, atol=1e-6, rtol=1e-4)
            close(weights.sum(-1), torch.ones(8), bound=1e-4)


@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("length", [1, 7, 64, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_quick_way_equals_the_plain_one_for_every_alpha_at_once(dtype, length, spread):
    scores = torch.randn(3, len(ALPHAS), 5, length, dtype=dtype) * spread
    scores[0, :, :, length // 2 + 1 :] = -torch.inf
    alpha = torch.tensor(ALPHAS, dtype=dtype)[:, None, None]
    got, expected = entmax(scores, alpha), plain_entmax(scores, alpha)
    rounding = 10 * torch.finfo(dtype).eps * length**0.5  # of sums over a row
    torch.testing.assert_close(got, expected, atol=rounding, rtol=rounding**0.5)
    torch.testing.assert_close(got.sum(-1), torch.ones_like(got[..., 0]))
    assert ((got == 0) == (expected == 0)).float().mean() > 0.999  # equal but for rounding


def test_blocks_of_rows_give_what_one_block_does(monkeypatch):
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([1.2, 1.5, 1.9]).double()[:, None, None].requires_grad_()
    upstream, found = torch.randn_like(scores), []
    for block in (2**15, 20):
        monkeypatch.setattr(module, "BLOCK", block)
        weights = entmax(scores, alpha)
        found.append((weights, *torch.autograd.grad(weights, (scores, alpha), upstream)))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("near", [1.0, 1 + 1e-7, 1 + 1e-6])
def test_alpha_1_is_softmax_in_value_and_in_gradient(near):
    scores = (3 * torch.randn(5, 9, dtype=torch.float64)).requires_grad_()
    alpha = torch.tensor(near, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(5, 9, dtype=torch.float64)
    weights = entmax(scores, alpha)
    expected = scores.softmax(-1)
    off = 1e-11 if near == 1 else 1e-4
    torch.testing.assert_close(weights, expected, atol=off, rtol=off)
    got, by_alpha = torch.autograd.grad((weights * upstream).sum(), (scores, alpha))
    (wanted,) = torch.autograd.grad((expected * upstream).sum(), scores)
    torch.testing.assert_close(got, wanted, atol=off, rtol=10 * off)
    # a one-sided difference of second order: there is nothing below 1
    at = [entmax(scores.detach(), torch.tensor(1 + h).double()) for h in (1e-3, 2e-3)]
    rise = ((4 * at[0] - at[1] - 3 * expected.detach()) * upstream).sum() / 2e-3
    torch.testing.assert_close(by_alpha, rise, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.0001, 1.5])
def test_gradients_of_scores_and_alpha_agree_with_finite_differences(alpha):
    scores = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    alphas = torch.tensor([[alpha], [1.4]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(entmax, (scores, alphas))


def test_gradients_of_hidden_scores_are_zero_and_none_is_nan():
    scores = torch.tensor([[0.5, -torch.inf, 0.1, -40.0]], requires_grad=True)
    alpha = torch.tensor(1.5, requires_grad=True)
    weights = entmax(scores, alpha)
    assert weights[0, 1] == weights[0, 3] == 0
    gradient, by_alpha = torch.autograd.grad(weights[0, 0], (scores, alpha))
    assert gradient[0, 1] == gradient[0, 3] == 0
    assert gradient[0, 0] > 0 > gradient[0, 2]
    assert by_alpha > 0  # a larger alpha sharpens


def test_every_head_learns_an_alpha_of_its_own():
    kernel = EntmaxKernel(HeadShape(HEADS, HEADS, HEAD_DIM))
    torch.testing.assert_close(kernel.alpha, torch.full((HEADS,), 1.5))
    q, k, v = inputs()
    mask, _ = seen_keys()
    kernel(q, KeysValues(k, v), mask, NOWHERE).context[:, 1].square().sum().backward()
    assert (kernel.logit.grad != 0).tolist() == [False, True, False, False]


def test_alpha_starts_where_it_is_told_and_stays_where_it_is_not_learned():
    kernel = EntmaxKernel(HeadShape(HEADS, HEADS, HEAD_DIM), alpha=1.3)
    torch.testing.assert_close(kernel.alpha, torch.full((HEADS,), 1.3))
    fixed = EntmaxKernel(HeadShape(HEADS, HEADS, HEAD_DIM), alpha=2.0, learned=False)
    assert torch.equal(fixed.alpha, torch.full((HEADS,), 2.0))
    assert list(fixed.parameters()) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_the_exact_answer_rounded(dtype):
    scores = (4 * torch.randn(6, 40)).to(dtype)
    weights = entmax(scores, torch.tensor(1.4))
    assert weights.dtype == dtype
    exact = entmax(scores.double(), torch.tensor(1.4).double())
    torch.testing.assert_close(weights, exact.to(dtype), atol=1e-4, rtol=2e-2)


def test_an_alpha_at_an_end_cannot_be_learned():
    with pytest.raises(UserError) as caught:
        EntmaxKernel(HeadShape(HEADS, HEADS, HEAD_DIM), alpha=1.0)
    assert str(caught.value) == (
        "alpha must be strictly between 1 and 2 to be learned, got 1.0; "
        "set attention.kernel.learned=false to fix it"
    )
