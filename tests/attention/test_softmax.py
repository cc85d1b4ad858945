"""The softmax kernel's weights, dropout and position hooks against written-out forms."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqattn.attention.cache import KeysValues
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.errors import UserError
from seqattn.positions import Position, Stack
from seqattn.settings.assembly import cross_default
from tests.attention.rows import NOWHERE, B, S, T, seen_keys
from tests.builders import HEAD_DIM, HEADS
from tests.tolerance import close


class Tilted(Position):
    """Adds to the scores, adds to the values and has a scale of its own."""

    hooks = frozenset({"score_term", "value_term"})

    def score_term(self, q, k, q_positions, k_positions):
        return -0.3 * (q_positions[:, None] - k_positions).abs()

    def value_term(self, weights, q_positions, k_positions):
        return weights.sum(-1, keepdim=True) * q_positions[:, None] + weights[..., :HEAD_DIM]

    def score_scale(self, head_dim):
        return 0.7


class TiltedScores(Tilted):
    hooks = frozenset({"score_term"})

    def value_term(self, weights, q_positions, k_positions):
        return None


def inputs(groups, queries=T):
    q = torch.randn(B, HEADS, queries, HEAD_DIM, requires_grad=True)
    k, v = (torch.randn(B, groups, S, HEAD_DIM, requires_grad=True) for _ in range(2))
    return q, k, v


def weights_written_out(q, k, allowed, scale=HEAD_DIM**-0.5, bias=0.0):
    """Loops over heads, exponentials in float64."""
    b, h, t, _ = q.shape
    out = torch.zeros(b, h, t, k.shape[2], dtype=torch.float64)
    group = h // k.shape[1]
    for head in range(h):
        scores = q[:, head].double() @ k[:, head // group].double().transpose(1, 2) * scale + bias
        power = scores.exp() * allowed.double()
        total = power.sum(-1, keepdim=True)
        out[:, head] = torch.where(total > 0, power / total.clamp(min=1e-300), 0.0)
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_observed_weights_equal_brute_force_and_change_no_output(groups):
    kernel = SoftmaxKernel(HeadShape(HEADS, groups, HEAD_DIM))
    q, k, v = inputs(groups)
    mask, allowed = seen_keys()
    before = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    maps = []
    kernel.observers = (maps.append,)
    after = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    assert torch.equal(before, after)
    (weights,) = maps
    expected = weights_written_out(q, k, allowed)
    close(weights.double(), expected)
    assert (weights[~allowed[:, None].expand_as(weights)] == 0).all()
    alone = ~allowed.any(-1)[:, None].expand(B, HEADS, T)
    torch.testing.assert_close(weights.sum(-1), (~alone).float())
    context = expected @ v.double().repeat_interleave(HEADS // groups, dim=1)
    close(after.double(), context)


def test_the_fused_kernel_is_never_given_a_query_with_nothing_to_look_at(monkeypatch):
    monkeypatch.setattr("seqattn.ops.longest", lambda *_: 0)
    monkeypatch.setattr("seqattn.ops.tiles_are_quicker", lambda kind, keys: False)
    given = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *args, **options: given.append(options["attn_mask"]) or fused(*args, **options),
    )
    kernel = SoftmaxKernel(HeadShape(HEADS, 2, HEAD_DIM))
    q, k, v = inputs(2)
    mask, allowed = seen_keys()
    assert not allowed.any(-1).all()
    kernel(q, KeysValues(k, v), mask, NOWHERE)
    kernel(q, KeysValues(k, v), mask, TiltedScores(Stack(HEADS * HEAD_DIM, HEADS)))
    assert [part.dtype for part in given] == [torch.bool, torch.float32]
    assert given[0].any(-1).all()  # some hardware answers such a row with NaN
    assert (given[1] > -torch.inf).any(-1).all()


@pytest.mark.parametrize("scheme", [Tilted, TiltedScores])
@pytest.mark.parametrize("observed", [False, True])
def test_a_positions_score_value_and_scale_terms_are_added(scheme, observed):
    kernel = SoftmaxKernel(HeadShape(HEADS, 2, HEAD_DIM))
    q, k, v = inputs(2)
    mask, allowed = seen_keys()
    position = scheme(Stack(HEADS * HEAD_DIM, HEADS))
    if observed:
        kernel.observers = (lambda weights: None,)
    got = kernel(q, KeysValues(k, v), mask, position).context
    distance = (torch.arange(T)[:, None] - torch.arange(S)).abs()
    weights = weights_written_out(q, k, allowed, scale=0.7, bias=-0.3 * distance)
    expected = weights @ v.double().repeat_interleave(2, dim=1)
    gradients = torch.autograd.grad(got.square().sum(), (q, k, v), retain_graph=True)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][0, :, 2] == 0).all()  # nothing to look at
    if scheme is Tilted:
        total = weights.sum(-1, keepdim=True)
        expected = expected + total * torch.arange(T)[:, None] + weights[..., :HEAD_DIM]
    close(got.double(), expected)


@pytest.mark.parametrize("kept_gradients", [False, True])
def test_dropped_weights_are_scaled_and_the_observed_ones_are_the_true_ones(kept_gradients):
    kernel = SoftmaxKernel(HeadShape(HEADS, 4, HEAD_DIM, dropout=0.4))
    kernel.edits = (lambda weights, visible: weights,) if kept_gradients else ()
    q, k, _ = inputs(4)
    identity = torch.zeros(B, HEADS, S, S)
    identity[:] = torch.eye(S)  # so that the context is the weights themselves
    mask, allowed = seen_keys()
    maps = []
    kernel.observers = (maps.append,)
    torch.manual_seed(3)
    dropped = kernel(q, KeysValues(k, identity), mask, NOWHERE).context
    true = weights_written_out(q, k, allowed).float()
    close(maps[0], true)
    kept = dropped != 0
    assert 0 < kept.sum() < (true > 0).sum()
    torch.testing.assert_close(dropped[kept], true[kept] / 0.6, atol=1e-6, rtol=1e-4)
    kernel.eval()
    context = kernel(q, KeysValues(k, identity), mask, NOWHERE).context
    close(context, true)


FORCED = {"flash": "ScaledDotProductFlash", "math": "SafeSoftmax", "written_out": "SoftmaxBackward"}
"""What a gradient goes through, in the names of PyTorch's operations, for each backend of a CPU."""


def path(x):
    """The names of the operations that a tensor was made by, down to its inputs."""
    names, todo = set(), [x.grad_fn]
    while todo:
        step = todo.pop()
        names.add(step.name())
        todo += [one for one, _ in step.next_functions if one is not None]
    return names


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("hooks", [None, TiltedScores])
@pytest.mark.parametrize("backend", FORCED)
def test_every_backend_gives_the_same_and_is_the_one_that_was_named(backend, hooks, groups):
    shape = HeadShape(HEADS, groups, HEAD_DIM)
    mask, position = seen_keys()[0], (hooks or Position)(Stack(HEADS * HEAD_DIM, HEADS))
    given = inputs(groups)
    contexts = [
        kernel(given[0], KeysValues(*given[1:]), mask, position).context
        for kernel in (SoftmaxKernel(shape), SoftmaxKernel(shape, backend))
    ]
    fused = any("FlashAttention" in name for name in path(contexts[1]))
    assert fused == (backend == "flash")
    assert any(name.startswith(FORCED[backend]) for name in path(contexts[1]))
    slopes = [torch.autograd.grad(one.square().sum(), given) for one in contexts]
    for one, other in zip((contexts[0], *slopes[0]), (contexts[1], *slopes[1])):
        close(one, other)


def test_flash_is_left_to_training_and_math_is_not(monkeypatch):
    """So that a model trained with a backend of one machine can be used on another."""
    seen = []
    monkeypatch.setattr(
        "seqattn.ops.attention", lambda *args: seen.append(args[-1]) or torch.zeros_like(args[0])
    )
    q, k, v = inputs(4)
    for backend in ("flash", "efficient", "math"):
        kernel = SoftmaxKernel(HeadShape(HEADS, 4, HEAD_DIM), backend)
        kernel(q, KeysValues(k, v), seen_keys()[0], NOWHERE)
        kernel.eval()(q, KeysValues(k, v), seen_keys()[0], NOWHERE)
    assert seen == ["flash", "auto", "efficient", "auto", "math", "math"]


class Learned(TiltedScores):
    def score_term(self, q, k, q_positions, k_positions):
        return torch.zeros(1, HEADS, T, S, requires_grad=True)


@pytest.mark.parametrize(
    ("backend", "dropout", "scheme", "reason"),
    [
        ("efficient", 0.0, None, " cannot compute this attention on cpu (PyTorch has none for it)"),
        ("flash", 0.1, None, "Both fused kernels do not support non-zero dropout"),
        ("flash", 0.0, Learned, "no gradient of a position's scores"),
        ("math", 0.0, Tilted, " cannot add positions to values; set position.values=false"),
    ],
)
def test_what_a_backend_cannot_compute_is_refused_with_the_reason(backend, dropout, scheme, reason):
    kernel = SoftmaxKernel(HeadShape(HEADS, 4, HEAD_DIM, dropout), backend)
    q, k, v = inputs(4)
    position = (scheme or Position)(Stack(HEADS * HEAD_DIM, HEADS))
    with pytest.raises(UserError) as refused:
        kernel(q, KeysValues(k, v), seen_keys()[0], position)
    line = str(refused.value)
    assert line.startswith(f"attention.kernel.backend={backend} ")
    assert reason in line
    assert "use auto" in line
    assert "\n" not in line


def test_other_errors_of_a_backend_pass_as_they_are(monkeypatch):
    def full(*args, **options):
        raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(F, "scaled_dot_product_attention", full)
    q, k, v = inputs(4)
    kernel = SoftmaxKernel(HeadShape(HEADS, 4, HEAD_DIM), "math")
    with pytest.raises(torch.OutOfMemoryError):
        kernel(q, KeysValues(k, v), seen_keys()[0], NOWHERE)


def test_a_backend_compiles_as_one_graph():
    kernel = SoftmaxKernel(HeadShape(HEADS, 4, HEAD_DIM), "flash")
    q, k, v = inputs(4)
    mask = seen_keys()[0]

    def context(q, k, v):
        return kernel(q, KeysValues(k, v), mask, NOWHERE).context

    compiled = torch.compile(context, fullgraph=True, backend="aot_eager")
    close(compiled(q, k, v), context(q, k, v))


def test_cross_attention_has_the_backend_of_a_softmax_self_attention_alone():
    for kernel, expected in ((partial(SoftmaxKernel, backend="math"), "math"), (Capped, "auto")):
        own = partial(MultiHeadAttention, num_heads=4, num_kv_heads=2, kernel=kernel)
        assert cross_default(own)(query_dim=16, memory_dim=16).kernel.backend == expected


class Capped(SoftmaxKernel):
    def normalize(self, scores):
        return scores.clamp(max=1.0).softmax(dim=-1)


def test_a_kernel_that_writes_its_weights_out_takes_no_fused_backend():
    Capped(HeadShape(HEADS, 4, HEAD_DIM), "written_out")
    with pytest.raises(UserError, match="backend must be auto, as Capped materializes its weights"):
        Capped(HeadShape(HEADS, 4, HEAD_DIM), "flash")
