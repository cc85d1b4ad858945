"""The arithmetic of the site is that of the mechanisms; their tests use more of it."""

import pytest
import torch

from seqattn.attention.alignment import Bahdanau
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.linear import LinearKernel
from seqattn.attention.kernels.lsh import LSHKernel, bucket_ids
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask
from tests.attention.rows import NOWHERE, B, built, check
from tests.builders import HEAD_DIM, HEADS
from tests.pages import DOCS, program

PAGE = program("arithmetic.py")


def of_heads(function):
    """A function of one head for all, as `check` takes it."""
    return lambda *parts: torch.stack([function(*head) for head in zip(*parts)])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_scaled_dot_products_and_shared_keys(groups):
    kernel = built(SoftmaxKernel, groups)
    check(kernel, of_heads(PAGE.softmax_attention))
    q, (k, v) = torch.randn(HEADS, HEAD_DIM), torch.randn(2, groups, 5, HEAD_DIM)
    mask = Mask.full(torch.ones(1, 5, dtype=torch.bool))
    found = kernel.float()(q[None, :, None], KeysValues(k[None], v[None]), mask, NOWHERE).context
    torch.testing.assert_close(found[0, :, 0], PAGE.grouped_attention(q, k, v))


def test_feature_maps():
    kernel, x = built(LinearKernel, HEADS, chunk=2), torch.randn(3, B, HEADS, 7, HEAD_DIM).double()
    q, k, v = x
    mask = Mask(torch.arange(7), torch.arange(7), causal=True)
    found = kernel(q, KeysValues(k, v), mask, NOWHERE).context
    for t in range(7):
        expected = PAGE.linear_attention(q[0, 1, t], k[0, 1, : t + 1], v[0, 1, : t + 1])
        torch.testing.assert_close(found[0, 1, t], expected)


def test_additive_scores():
    alignment = Bahdanau(query_dim=6, memory_dim=5).double()
    state, annotations = torch.randn(1, 1, 6).double(), torch.randn(1, 7, 5).double()
    source = alignment.project(annotations, torch.ones(1, 7, dtype=torch.bool))
    parts = alignment.score
    found = alignment(state, source, torch.zeros(1, 1, dtype=torch.long)).context
    weights = (parts.query.weight, parts.key.weight, parts.v.weight[0])
    expected = PAGE.additive_attention(state[0, 0], annotations[0], *weights)
    torch.testing.assert_close(found[0, 0], expected)


def test_hashed_buckets():
    kernel = built(LSHKernel, HEADS, bucket_size=3, rounds=1)
    x, values = torch.randn(2, B, HEADS, 13, HEAD_DIM).double()
    real = torch.ones(B, 13, dtype=torch.bool)
    found = kernel(x, KeysValues(x, values), Mask.full(real), NOWHERE).context
    ids = bucket_ids(x, real, kernel.rotations, 3)[0]
    seen = PAGE.hashed_keys(ids[0, 1].tolist(), 3)
    for place, keys in enumerate(seen):
        expected = PAGE.hashed_attention(place, x[0, 1], values[0, 1], keys)
        torch.testing.assert_close(found[0, 1, place], expected)
    directions = kernel.rotations[0, 0, 1, :, :4].double()  # 8 buckets for 4 chunks
    assert torch.equal(PAGE.hashes(x[0, 1], directions), ids[0, 1])


def test_the_patterns_are_those_of_the_functions():
    patterns = [
        [range(i + 1) for i in range(8)],
        [PAGE.window_keys(i, 8, window=2) for i in range(8)],
        [PAGE.streaming_keys(i, sinks=1, window=3) for i in range(8)],
        PAGE.hashed_keys([0, 1, 0, 2, 2, 3, 3, 0], size=2),
    ]
    rows = [
        "   ".join(" ".join("·■"[j in seen[i]] for j in range(8)) for seen in patterns)
        for i in range(8)
    ]
    assert "\n".join(rows) in (DOCS / "arithmetic.py").read_text(encoding="utf-8")


def test_each_function_has_at_most_30_lines():
    text = (DOCS / "arithmetic.py").read_text(encoding="utf-8")
    parts = text.split("\n\n\ndef ")[1:]
    assert len(parts) >= 10
    assert all(part.count("\n") <= 30 for part in parts)
