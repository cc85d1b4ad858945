"""Linear attention and the Performer, which share their sums, against n x n forms in float64."""

import itertools
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels import linear
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.features import PerformerKernel
from seqattn.attention.kernels.linear import LinearKernel, elu_plus_one
from seqattn.attention.masks import Mask
from seqattn.positions import Position, RotaryPosition, Stack
from tests.operations import Largest
from tests.pages import program

feature_map = program("arithmetic.py").feature_map
B, H, T, S, DH = 2, 4, 7, 9, 6
NOWHERE = Position(Stack(H * DH, H))
ROTARY = RotaryPosition(Stack(H * DH, H))
REAL = torch.tensor([[1] * T, [0, 1, 1, 0, 1, 1, 0]], dtype=torch.bool)  # also in the middle
KERNELS = {"linear": LinearKernel, "performer": partial(PerformerKernel, features=10)}


def made(name, groups=H, **options):
    return KERNELS[name](HeadShape(H, groups, DH), **options).double()


def inputs(groups, queries=T, keys=T, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = [(B, H, queries, DH), (B, groups, keys, DH), (B, groups, keys, DH)]
    return [torch.randn(s, generator=draw, dtype=dtype).requires_grad_() for s in shapes]


def log_similarity(kernel, q, k):
    """Logarithm of phi(q) . phi(k) for one query and one key, from the papers' formulas."""
    if isinstance(kernel, PerformerKernel):
        w, root = kernel.projection.double(), DH**0.25
        one = w @ q / root - (q / root).square().sum() / 2
        other = w @ k / root - (k / root).square().sum() / 2
        return torch.logsumexp(one + other, 0) - torch.tensor(float(len(w))).log()
    return (feature_map(q) @ feature_map(k)).log()


def written_out(kernel, q, k, allowed):
    """Weights (B, H, T, S), one query, key and head at a time; zeros with nothing to see."""
    share = q.shape[1] // k.shape[1]
    weights = q.new_zeros(*q.shape[:3], k.shape[2])
    rows = []
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        seen = [j for j in range(k.shape[2]) if allowed[b, i, j]]
        row = weights[b, h, i]
        if seen:
            logs = [log_similarity(kernel, q[b, h, i], k[b, h // share, j]) for j in seen]
            row = row.index_put((torch.tensor(seen),), torch.stack(logs).softmax(0))
        rows.append(row)
    return torch.stack(rows).reshape(weights.shape)


def contexts(weights, values):
    return weights @ values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)


def self_mask(causal, real=REAL):
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    allowed = real[:, None, :].expand(-1, T, -1)
    return Mask(places, places, real, causal), allowed.tril() if causal else allowed


def assert_same_gradients(ours, theirs, leaves):
    upstream = torch.randn(ours.shape, dtype=ours.dtype)
    got = torch.autograd.grad((ours * upstream).sum(), leaves)
    expected = torch.autograd.grad((theirs * upstream).sum(), leaves, retain_graph=True)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("causal", "chunk"), [(False, 64), (True, 1), (True, 2), (True, 3), (True, 7), (True, 64)]
)
def test_it_equals_its_own_n_by_n_form_in_value_and_gradient(name, groups, causal, chunk):
    kernel = made(name, groups, chunk=chunk)
    q, k, v = inputs(groups)
    mask, allowed = self_mask(causal)
    ours = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    theirs = contexts(written_out(kernel, q, k, allowed), v)
    torch.testing.assert_close(ours, theirs)
    if causal:
        assert (ours[1, :, 0] == 0).all()  # padding comes first there
    assert_same_gradients(ours, theirs, (q, k, v))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("causal", "chunk"), [(False, 64), (True, 1), (True, 2), (True, 3)])
def test_segments_that_are_mapped_apart_give_what_one_gives(name, causal, chunk, monkeypatch):
    kernel = made(name, 2, chunk=chunk)
    q, k, v = inputs(2)
    mask, _ = self_mask(causal)
    whole = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    monkeypatch.setattr(linear, "SEGMENT", 4)
    cut = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    torch.testing.assert_close(cut, whole)
    assert_same_gradients(cut, whole, (q, k, v))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
def test_positions_turn_queries_and_keys_before_the_feature_map(name, causal):
    kernel = made(name, chunk=3)
    q, k, v = inputs(H)
    mask, allowed = self_mask(causal)
    ours = kernel(q, KeysValues(k, v), mask, ROTARY).context
    turned = [ROTARY.rotate(x, mask.query_positions) for x in (q, k)]
    theirs = contexts(written_out(kernel, *turned, allowed), v)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("keys", [1, DH, DH + 1])
def test_few_keys_are_met_by_their_weights(name, groups, keys):
    kernel = made(name, groups)
    q, k, v = inputs(groups, keys=keys)
    real = torch.ones(B, keys, dtype=torch.bool)
    real[1, 1:3] = real[0, -1] = False
    mask = Mask(torch.arange(T), torch.arange(keys), real)
    ours = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    allowed = real[:, None].expand(-1, T, -1)
    theirs = contexts(written_out(kernel, q, k, allowed), v)
    torch.testing.assert_close(ours, theirs)
    assert_same_gradients(ours, theirs, (q, k, v))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("keys", [DH, S])
@torch.no_grad()
def test_sums_over_a_source_are_made_once(name, keys):
    kernel, beams = made(name, 2), 3
    _, k, v = inputs(2, keys=keys)
    q = torch.randn(B * beams, H, 1, DH, dtype=torch.float64)
    real = torch.arange(keys) < torch.tensor([[keys], [2]])
    mask = Mask(torch.arange(1), torch.arange(keys), real)
    plain = KeysValues(k, v)
    source = kernel.prepared(plain, mask, ROTARY)
    expected = kernel(q, plain, mask, ROTARY).context
    mapped = []
    kernel.map_keys = lambda *given: mapped.append(given)
    found = kernel(q, source, mask, ROTARY).context
    torch.testing.assert_close(found, expected)
    second = torch.tensor([1])  # the only sentence that goes on
    mask = Mask(torch.arange(1), torch.arange(keys), real[second])
    found = kernel(q[beams:], source.keep(second), mask, ROTARY).context
    torch.testing.assert_close(found, expected[beams:])
    assert mapped == []


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("groups", [1, 4])
def test_beams_share_the_keys_of_their_source(name, groups):
    beams, kernel = 3, made(name, groups)
    _, k, v = inputs(groups, keys=S)
    q = torch.randn(B * beams, H, 2, DH, dtype=torch.float64)
    real = torch.tensor([[1] * S, [0, 0, 1, 1, 1, 1, 1, 1, 0]], dtype=torch.bool)
    mask = Mask(torch.arange(2), torch.arange(S), real)
    ours = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    spread = [x.repeat_interleave(beams, dim=0) for x in (k, v)]
    allowed = real.repeat_interleave(beams, dim=0)[:, None].expand(-1, 2, -1)
    weights = written_out(kernel, q, spread[0], allowed)
    torch.testing.assert_close(ours, contexts(weights, spread[1]))
    seen = []
    kernel.observers = (seen.append,)
    kernel(q, KeysValues(k, v), mask, NOWHERE)
    folded = weights.unflatten(0, (B, beams)).transpose(1, 2).flatten(2, 3)  # (B, H, K*T, S)
    torch.testing.assert_close(seen[0], folded)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [2, 4])
def test_observed_weights_are_the_true_ones_and_a_gradient_can_reach_them(name, causal, groups):
    kernel = made(name, groups, chunk=3)
    q, k, v = inputs(groups)
    mask, allowed = self_mask(causal)
    plain = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    seen = []
    kernel.observers = (seen.append,)
    assert torch.equal(kernel(q, KeysValues(k, v), mask, NOWHERE).context, plain)
    torch.testing.assert_close(seen[0], written_out(kernel, q, k, allowed))
    assert (seen[0] >= 0).all()
    kernel.edits = (lambda weights, visible: weights,)
    context = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    torch.testing.assert_close(context, plain)
    upstream = torch.randn_like(context)
    (got,) = torch.autograd.grad((context * upstream).sum(), seen[1], retain_graph=True)
    spread = v.repeat_interleave(H // groups, dim=1)
    torch.testing.assert_close(got, upstream @ spread.transpose(2, 3))
    assert_same_gradients(context, plain, (q, k, v))


def decoded(kernel, q, k, v, cuts, real=REAL, cache=None):
    """The contexts of T tokens given in pieces, through a cache."""
    cache = cache or kernel.make_cache(beams=1)
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    out, start = [], 0
    for cut in cuts:
        end = start + cut
        mask = Mask(places[:, start:end], places[:, :end], real[:, :end], causal=True)
        new = KeysValues(k[:, :, start:end], v[:, :, start:end])
        out.append(kernel(q[:, :, start:end], new, mask, ROTARY, cache).context)
        start = end
    return torch.cat(out, dim=2)


@pytest.mark.parametrize("name", KERNELS)
def test_the_cache_never_grows_and_holds_one_matrix_a_head(name):
    kernel = KERNELS[name](HeadShape(H, 2, DH))
    cache, sizes = kernel.make_cache(beams=1), set()
    assert cache.nbytes == 0
    real = torch.ones(B, T, dtype=torch.bool)
    for _ in range(3):
        decoded(kernel, *inputs(2, dtype=torch.float32), (1, 4, 2), real, cache)
        sizes.add(cache.nbytes)
    width, maximum = (DH, 0) if name == "linear" else (10, 1)
    assert sizes == {4 * B * 2 * (width * (DH + 1) + maximum)}


@pytest.mark.parametrize("name", KERNELS)
def test_shown_weights_of_beams_that_reorder_and_leave_are_those_of_their_own_past(name):
    beams, kernel, groups = 3, made(name, 2), 2
    maps = []
    kernel.observers = (maps.append,)
    cache = kernel.make_cache(beams)
    cache.reorder(torch.tensor([[2, 0, 0]] * B))  # nothing yet to move
    cache.keep(torch.tensor([0, 1]))
    draw = torch.Generator().manual_seed(4)
    past, length = [[] for _ in range(B * beams)], 0
    for step, steps in enumerate((2, 1, 3, 1)):
        shape = (len(past), steps, DH)
        q = torch.randn(len(past), H, *shape[1:], generator=draw, dtype=torch.float64)
        k, v = (torch.randn(len(past), groups, *shape[1:], dtype=torch.float64) for _ in range(2))
        places = torch.arange(length + steps)
        mask = Mask(places[length:], places, causal=True)
        out = kernel(q, KeysValues(k, v), mask, NOWHERE, cache).context
        length += steps
        for row, history in enumerate(past):
            history.append((k[row], v[row]))
            keys, values = (torch.cat(parts, dim=1)[None] for parts in zip(*history))
            triangle = torch.ones(1, steps, length, dtype=torch.bool).tril(length - steps)
            weights = written_out(kernel, q[row : row + 1], keys, triangle)
            torch.testing.assert_close(out[row : row + 1], contexts(weights, values))
            torch.testing.assert_close(maps[-1][row : row + 1], weights)
        index = torch.randint(beams, (len(past) // beams, beams), generator=draw)
        cache.reorder(index)
        rows = (index + beams * torch.arange(len(index))[:, None]).flatten().tolist()
        past = [list(past[row]) for row in rows]
        if step == 1:
            cache.keep(torch.tensor([1]))
            past = past[beams:]


@pytest.mark.parametrize("gap", [True, False])
def test_weights_of_a_past_that_was_not_kept_are_refused_in_words(gap):
    kernel, real = made("linear"), torch.ones(B, T, dtype=torch.bool)
    cache = kernel.make_cache(beams=1)
    kernel.observers = (lambda weights: None,) if gap else ()
    decoded(kernel, *inputs(H), (2,), real, cache)
    kernel.observers = ()
    decoded(kernel, *inputs(H), (1,), real, cache)
    kernel.observers = (lambda weights: None,)
    with pytest.raises(AssertionError):
        decoded(kernel, *inputs(H), (1,), real, cache)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_grows_with_the_square_of_the_length(name, causal):
    kernel, largest = KERNELS[name](HeadShape(H, 2, DH), chunk=16), []
    for length in (1024, 2048, 4096):
        q, k, v = (torch.randn(1, heads, length, DH).requires_grad_() for heads in (H, 2, 2))
        mask = Mask(torch.arange(length), torch.arange(length), causal=causal)
        with Largest() as mode:
            kernel(q, KeysValues(k, v), mask, NOWHERE).context.square().sum().backward()
        largest.append(mode.numbers)
    assert 1024 * H * DH <= largest[0] < 1024 * 1024
    assert largest[1] <= 2 * largest[0]
    assert largest[2] <= 2 * largest[1]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_over_many_keys_are_precise_in_half_precision(name, dtype, causal):
    length = 3000
    kernel = KERNELS[name](HeadShape(H, H, DH), chunk=32)
    q, k, v = (5 + torch.randn(1, H, length, DH) for _ in range(3))
    q, k, v = (x.to(dtype) for x in (q, k, v))
    mask = Mask(torch.arange(length), torch.arange(length), causal=causal)
    rough = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    wide = KeysValues(k.double(), v.double())
    exact = kernel.double()(q.double(), wide, mask, NOWHERE).context
    assert rough.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(rough.double(), exact, rtol=eps, atol=eps)


def test_the_feature_map_is_elu_plus_one_with_its_gradient_and_never_zero():
    x = torch.linspace(-25, 25, 101, dtype=torch.float64).requires_grad_()
    ours, theirs = elu_plus_one(x), F.elu(x) + 1
    torch.testing.assert_close(ours, theirs, atol=1e-15, rtol=1e-4)
    (got,) = torch.autograd.grad(ours.sum(), x, retain_graph=True)
    torch.testing.assert_close(got, x.clamp(max=0).exp().detach())
    assert elu_plus_one(torch.tensor(-10.0)).item() == pytest.approx(4.539993e-5, rel=1e-6)
    assert elu_plus_one(torch.tensor(-1e9)) > 0


@pytest.mark.parametrize("name", KERNELS)
def test_tokens_far_below_zero_are_still_seen(name):
    kernel = KERNELS[name](HeadShape(H, H, DH), chunk=2)
    mask, _ = self_mask(causal=True, real=torch.ones(B, T, dtype=torch.bool))
    low = torch.full((B, H, T, DH), -1e3).requires_grad_()
    v = torch.randn(B, H, T, DH)
    kernel(low, KeysValues(low, v), mask, NOWHERE).context.square().sum().backward()
    assert low.grad.isfinite().all()
    low, v = low.detach().double(), v.double()  # |k|^2 is a million, of which float32 rounds 0.1
    out = kernel.double()(low, KeysValues(low, v), mask, NOWHERE).context
    mean = v.cumsum(2) / torch.arange(1, T + 1)[:, None]  # all keys are alike
    torch.testing.assert_close(out, mean)
