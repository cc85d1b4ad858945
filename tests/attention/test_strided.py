"""The index sets of strided attention, as Child et al. (2019) write them."""

import pytest
import torch

from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.strided import StridedKernel
from seqattn.errors import UserError
from seqattn.positions import Position, Stack
from tests.builders import causal_mask, full_mask


def rows(kernel, length, make, head=0):
    """The keys of each query: those whose values have a gradient on the way to its context."""
    q, k, v = (torch.randn(1, 2, length, 3) for _ in range(3))
    v.requires_grad_()
    real = torch.ones(1, length, dtype=torch.bool)
    out = kernel(q, KeysValues(k, v), make(real), Position(Stack(6, 2))).context
    grads = [
        torch.autograd.grad(out[0, head, i].sum(), v, retain_graph=True) for i in range(length)
    ]
    reached = [grad[0, head, :, 0].nonzero().flatten().tolist() for (grad,) in grads]
    seen = []
    kernel.observers = (seen.append,)
    kernel(q, KeysValues(k, v), make(real), Position(Stack(6, 2)))
    observed = [row.nonzero().flatten().tolist() for row in seen[0][0, head].detach()]
    assert observed == reached
    return reached


def test_a_decoder_sees_the_last_stride_and_every_stride_th_before():
    assert rows(StridedKernel(HeadShape(2, 2, 3), stride=3), 9, causal_mask) == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [1, 2, 3, 4],
        [2, 3, 4, 5],
        [0, 3, 4, 5, 6],
        [1, 4, 5, 6, 7],
        [2, 5, 6, 7, 8],
    ]


def test_an_encoder_sees_the_same_on_both_sides():
    assert rows(StridedKernel(HeadShape(2, 2, 3), stride=2), 8, full_mask) == [
        [0, 1, 2, 4, 6],
        [0, 1, 2, 3, 5, 7],
        [0, 1, 2, 3, 4, 6],
        [1, 2, 3, 4, 5, 7],
        [0, 2, 3, 4, 5, 6],
        [1, 3, 4, 5, 6, 7],
        [0, 2, 4, 5, 6, 7],
        [1, 3, 5, 6, 7],
    ]


def test_split_heads_take_turns_at_the_two_sets():
    kernel = StridedKernel(HeadShape(2, 2, 3), stride=2, split_heads=True)
    assert rows(kernel, 5, causal_mask) == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert rows(kernel, 5, causal_mask, head=1) == [[0], [1], [0, 2], [1, 3], [0, 2, 4]]


def test_a_stride_of_the_length_is_full_attention():
    assert rows(StridedKernel(HeadShape(2, 2, 3), stride=7), 7, full_mask) == [list(range(7))] * 7


def test_heads_that_cannot_be_shared_out_are_refused():
    text = r"^attention.num_heads must be even to alternate two patterns, got 3$"
    with pytest.raises(UserError, match=text):
        StridedKernel(HeadShape(3, 3, 3), split_heads=True)
