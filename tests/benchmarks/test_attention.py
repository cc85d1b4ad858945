"""The attention benchmark: what it counts is right, whatever the clock says."""

import pytest
import torch

from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.xca import XCAKernel
from seqattn.benchmarks.attention import AttentionPlan, Cost, exponent, measure_attention
from seqattn.benchmarks.contestants import Contestant
from seqattn.benchmarks.live import peak_bytes
from seqattn.benchmarks.measure import Spread
from seqattn.benchmarks.steps import measure_steps
from seqattn.errors import UserError
from seqattn.positions import Position, Stack

DIM, HEADS = 24, 4


def contestant(name, num_kv_heads=HEADS, kernel=SoftmaxKernel):
    def make(length):
        attention = MultiHeadAttention(DIM, DIM, HEADS, num_kv_heads, kernel)
        return attention, Position(Stack(DIM, HEADS))

    return Contestant(name, make)


def plan(*contestants, **options):
    options = {"lengths": (8, 16), "dim": DIM, "num_heads": HEADS, "rounds": 1, **options}
    return AttentionPlan(contestants, **options)


def test_memory_counts_what_lives_at_once_and_not_what_was_there_before():
    x = torch.ones(1000)

    def work():
        first = x + 1  # 4,000 bytes
        del first
        second = x.view(10, 100) * 2  # 4,000 more, after the first is gone
        return second.double()  # 8,000 beside it

    assert peak_bytes(work, "cpu") == 12_000


def test_the_cache_of_fewer_key_heads_is_smaller_by_as_much():
    found = measure_attention(
        plan(contestant("mha"), contestant("gqa", 2), contestant("mqa", 1), causal=True)
    )
    bytes_of = {(cost.name, cost.length): cost.cache_bytes for cost in found}
    for length in (8, 16):
        whole = 2 * length * DIM * 4
        assert bytes_of["mha", length] == whole
        assert bytes_of["gqa", length] == whole // 2
        assert bytes_of["mqa", length] == whole // 4
        assert bytes_of["sdpa", length] is None


def test_flops_are_those_of_the_matrix_products():
    options = {"backward": False, "projections": True, "lengths": (16,)}
    (sdpa, mha) = measure_attention(plan(contestant("mha"), **options))
    assert sdpa.flops == mha.flops == 4 * 2 * 16 * DIM * DIM + 4 * 16 * 16 * DIM
    assert mha.parameters == 4 * (DIM * DIM + DIM)


def test_what_cannot_be_causal_is_left_out_and_alone_refused():
    xca = contestant("xca", kernel=XCAKernel)
    names = {cost.name for cost in measure_attention(plan(contestant("mha"), xca, causal=True))}
    assert names == {"sdpa", "mha"}
    with pytest.raises(UserError, match="no attention of those asked for can run so"):
        measure_attention(plan(xca, causal=True))


def test_a_length_that_would_need_too_much_memory_is_left_out():
    found = measure_attention(plan(contestant("mha"), lengths=(8, 64), memory_limit=1e5))
    assert [(c.name, c.length) for c in found] == [("sdpa", 8), ("mha", 8), ("sdpa", 64)]


def test_the_exponent_is_the_slope_between_logarithms():
    def cost(length, seconds):
        return Cost("a", length, Spread.of([seconds]), Spread.of([1.0]), 0, 0, 0, None)

    costs = [cost(1024, 50.0), cost(4096, 1.0), cost(8192, 3.0), cost(16384, 9.0)]
    assert exponent(costs, "a") == pytest.approx(1.58496, abs=1e-4)  # log2(3)
    assert exponent(costs[:2], "a") is None


def test_decoding_reports_every_attention_that_decodes():
    subjects = [contestant("mqa", 1), contestant("xca", kernel=XCAKernel)]
    (cost,) = measure_steps(subjects, 20, DIM)
    assert (cost.name, cost.tokens, cost.cache_bytes) == ("mqa", 20, 2 * 20 * DIM // HEADS * 4)
    assert min(cost.early, cost.late) > 0
    with pytest.raises(UserError, match=r"attention\.decode must be at least 20 tokens, got 19"):
        measure_steps(subjects, 19, DIM)
