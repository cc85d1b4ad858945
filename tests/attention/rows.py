"""Kernels against a reference of one query at a time, over the keys that it sees and no others."""

import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.masks import Mask
from seqattn.positions import Position, Stack
from tests.builders import HEAD_DIM, HEADS, randomised

B, T, S = 2, 5, 7
REAL = torch.tensor([[1] * 7, [0, 1, 1, 1, 1, 0, 0]], dtype=torch.bool)
NOWHERE = Position(Stack(HEADS * HEAD_DIM, HEADS))


def built(kernel, groups=2, **options):
    """The kernel with noise on its parameters, in float64."""
    return randomised(kernel(HeadShape(HEADS, groups, HEAD_DIM), **options).double(), seed=3)


def inputs(groups=2):
    shapes = (B, HEADS, T, HEAD_DIM), *[(B, groups, S, HEAD_DIM)] * 2
    return [(2 * torch.randn(*shape)).double().requires_grad_() for shape in shapes]


def seen_keys():
    """A mask whose third query has nothing to see, and the same as bool (B, T, S)."""
    extra = torch.rand(B, 1, T, S) < 0.7
    extra[0, 0, 2] = False
    mask = Mask(torch.arange(T), torch.arange(S), REAL, extra=extra)
    return mask, (extra & REAL[:, None, None])[:, 0]


def check(kernel, row):
    """The kernel equals the reference in value and gradient, to its parameters' too.

    `row(q, keys, values)` returns the context (H, Dh) of one query (H, Dh) over the keys and values
    (H, N, Dh) that it sees.
    """
    groups = kernel.num_kv_heads
    tensors, (mask, seen) = inputs(groups), seen_keys()
    q, k, v = tensors
    got = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    k, v = (x.repeat_interleave(HEADS // groups, dim=1) for x in (k, v))
    nothing = torch.zeros(HEADS, HEAD_DIM, dtype=torch.float64)
    rows = [
        [
            row(q[b, :, t], k[b][:, keys], v[b][:, keys]) if keys.any() else nothing
            for t, keys in enumerate(seen[b])
        ]
        for b in range(B)
    ]
    expected = torch.stack([torch.stack(part, dim=1) for part in rows])
    torch.testing.assert_close(got, expected, atol=1e-11, rtol=1e-11)
    upstream, wanted = torch.randn_like(got), [*tensors, *kernel.parameters()]
    ours = torch.autograd.grad((got * upstream).sum(), wanted, retain_graph=True)
    theirs = torch.autograd.grad((expected * upstream).sum(), wanted)
    for one, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 1e-4
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def weighted(weights, values):
    """(H, Dh) sums of values (H, N, Dh) by weights (H, N)."""
    return torch.einsum("hn,hnd->hd", weights, values)


def products(q, keys):
    """(H, N) scaled products of a query (H, Dh) and keys (H, N, Dh)."""
    return torch.einsum("hd,hnd->hn", q, keys) / HEAD_DIM**0.5
