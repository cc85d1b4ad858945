"""Every function with gradients of its own has right second derivatives, or refuses them."""

import ast
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from seqattn.attention.kernels import ring
from seqattn.attention.kernels.entmax import entmax
from seqattn.attention.kernels.features import plain_features, positive_features
from seqattn.attention.kernels.linear import elu_plus_one
from seqattn.attention.kernels.shared.layouts import Overlapping
from seqattn.ops import drop, tanh_
from seqattn.ops.cpu.flash_attention import flash_attention
from seqattn.ops.cpu.onednn import _Linear, _Product
from seqattn.ops.cpu.short_attention import short_attention
from seqattn.ops.cross_entropy import LossTerms
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from tests.pages import ROOT


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def seeded(function):
    """The function with the same draws in every call."""

    def again(*inputs):
        torch.manual_seed(1)
        return function(*inputs)

    return again


def attentions(attend, **options):
    """Of queries, keys of fewer heads and values that are made of the same numbers."""
    return lambda q, keys: attend(q, keys, 0.5 * keys + 1, None, True, 0.3, **options)


def ringed(q, keys):
    plan = ring.Plan(dist.group.WORLD, False, 0.3, 8)
    return ring._Ring.apply(q, keys, keys, torch.ones(2, 5, dtype=torch.bool), plan)


RIGHT = {
    "_ShortAttention": (
        seeded(attentions(short_attention, dropout=0.4)),
        (2, 4, 5, 6),
        (2, 2, 5, 6),
    ),
    "_Product": (_Product.apply, (2, 5, 7), (2, 7, 4)),
    "_Linear": (_Linear.apply, (2, 5, 7), (4, 7), (4,)),
    "_CpuDropout": (seeded(partial(drop, p=0.4)), (3, 5)),
    "_Tanh": (lambda x: tanh_(2 * x), (3, 5)),
    "_EluPlusOne": (elu_plus_one, (3, 5)),
    "Overlapping": (lambda x: Overlapping.apply(x, 4, 2), (1, 2, 8, 3)),
}
REFUSED = {
    "_Entmax": (lambda x: entmax(x, torch.tensor(1.5)), (3, 5)),
    "_PrecomputedGradients": (
        lambda x, w: blockwise_cross_entropy(x, w, torch.ones(2, 5).long(), LossTerms()).smoothed,
        (2, 5, 7),
        (9, 7),
    ),
    "_Ring": (ringed, (2, 4, 5, 6), (2, 2, 5, 6)),
}


@pytest.fixture(autouse=True)
def _one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def cases(table):
    return [pytest.param(function, shapes, id=name) for name, (function, *shapes) in table.items()]


def inputs_of(shapes):
    return [drawn(*shape) for shape in shapes]


def by_grad(function, inputs):
    """The products of second derivatives with ones, by `torch.autograd.grad`."""
    out = function(*inputs).sin().sum()
    once = torch.autograd.grad(out, inputs, create_graph=True)
    return torch.autograd.grad(sum(x.sin().sum() for x in once), inputs)


def by_backward(function, inputs):
    """The same by `backward`."""
    function(*inputs).sin().sum().backward(create_graph=True)
    once = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    sum(x.sin().sum() for x in once).backward()
    found = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    return found


WAYS = pytest.mark.parametrize("twice", [by_grad, by_backward])


def functions_of_the_package():
    """The names of all classes that derive from `torch.autograd.Function`."""
    for path in (ROOT / "seqattn").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            bases = [ast.unparse(base) for base in getattr(node, "bases", ())]
            if isinstance(node, ast.ClassDef) and any(x.endswith("Function") for x in bases):
                yield node.name


def test_every_function_is_tried():
    # one has its softmax in float32, another a gradient that is not its value's; the third trains
    elsewhere = ["_FlashAttention", "_Features", "_Passes"]
    assert sorted([*RIGHT, *REFUSED, *elsewhere]) == sorted(functions_of_the_package())


@pytest.mark.usefixtures("either_cpu")
@pytest.mark.parametrize(("function", "shapes"), cases(RIGHT))
def test_second_derivatives_agree_with_finite_differences(function, shapes):
    inputs = inputs_of(shapes)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
    for ours, theirs in zip(by_grad(function, inputs), by_backward(function, inputs)):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("either_cpu")
@pytest.mark.parametrize(("function", "shapes"), cases(RIGHT))
def test_a_gradient_is_the_same_where_another_is_to_follow(function, shapes):
    inputs = inputs_of(shapes)
    ours, theirs = (
        torch.autograd.grad(function(*inputs).sin().sum(), inputs, create_graph=more)
        for more in (True, False)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@WAYS
@pytest.mark.parametrize("mask", ["none", "causal", "hidden", "added", "learnt"])
def test_those_of_flash_attention_are_pytorchs(mask, twice):
    inputs = inputs_of(((2, 4, 5, 6), (2, 2, 5, 6), (1, 4, 5, 5)))
    hidden = torch.rand(2, 1, 5, 5) < 0.3
    hidden[..., 0] = False

    def attend(attention, q, keys, bias):
        added = bias.detach() if mask == "added" else None
        bias = bias if mask == "learnt" else ~hidden if mask == "hidden" else added
        extra = {} if bias is None else {"attn_mask": bias}
        values = 0.5 * keys + 1
        if attention is flash_attention:
            return flash_attention(q, keys, values, bias, mask == "causal", 0.3)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                q, keys, values, is_causal=mask == "causal", scale=0.3, enable_gqa=True, **extra
            )

    learning = inputs if mask == "learnt" else inputs[:2]
    ours, theirs = (
        twice(lambda *x, by=attention: attend(by, *x, *inputs[len(x) :]), learning)
        for attention in (flash_attention, F.scaled_dot_product_attention)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() < 1e-4 * other.norm()


@WAYS
@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_those_of_random_features_are_the_plain_ones(scale, twice):
    x, directions = drawn(3, 5), torch.randn(7, 5, dtype=torch.float64)
    ours, theirs = (
        twice(lambda x, by=by: by(x, directions, scale)[0], [x])
        for by in (positive_features, plain_features)
    )
    torch.testing.assert_close(ours, theirs)


@WAYS
@pytest.mark.parametrize(("function", "shapes"), cases(REFUSED))
def test_others_are_refused_and_not_wrong(function, shapes, twice):
    with pytest.raises(RuntimeError, match="does not support second derivatives"):
        twice(function, inputs_of(shapes))


def test_a_path_beside_a_refused_one_does_not_hide_it():
    x = drawn(3, 5)
    out = (entmax(x, torch.tensor(1.5)) * x).sum()  # where `once_differentiable` says nothing
    with pytest.raises(RuntimeError, match="does not support second derivatives"):
        torch.autograd.grad(out, x, create_graph=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_gradient_is_not_taken_for_one_with_a_gradient(backend):
    torch.compiler.reset()
    x, function = drawn(3, 5), REFUSED["_Entmax"][0]
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    (ours,) = torch.autograd.grad(compiled(x).sin().sum(), x)
    torch.testing.assert_close(ours, torch.autograd.grad(function(x).sin().sum(), x)[0])
    with pytest.raises(RuntimeError):
        by_grad(compiled, [x])
