"""The attention benchmark: what it counts is right, whatever the clock says."""

from functools import partial

import pytest
import torch

from benchmarks.attention_steps import AttentionStepsSuite
from benchmarks.attention_work import Cost, exponent, peak_bytes
from benchmarks.attentions import (
    AttentionChoices,
    AttentionSuite,
)
from seqattn.attention.alignment import Bahdanau
from seqattn.attention.experts import MixtureOfAttention
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.linformer import LinformerKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.strided import StridedKernel
from seqattn.attention.kernels.xca import XCAKernel
from seqattn.errors import UserError
from seqattn.positions import ALiBiPosition, Position
from tests.nodes import made

DIM, HEADS = 24, 4


def heads(num_kv_heads=2, kernel=SoftmaxKernel):
    """As conf/attention writes them; as many key heads as heads where both are 2."""
    return partial(MultiHeadAttention, num_heads=2, num_kv_heads=num_kv_heads, kernel=kernel)


def suite(**options):
    options = {"lengths": [8, 16], "dim": DIM, "num_heads": HEADS, "rounds": 1, **options}
    return AttentionSuite(**options)


def test_memory_counts_what_lives_at_once_and_not_what_was_there_before():
    x = torch.ones(1000)

    def work():
        first = x + 1  # 4,000 bytes
        del first
        second = x.view(10, 100) * 2  # 4,000 more, after the first is gone
        return second.double()  # 8,000 beside it

    assert peak_bytes(work, "cpu") == 12_000


def test_memory_is_that_of_the_gpu_that_was_asked_for(monkeypatch):
    asked = []
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, asked.append)
    for name, found in (("memory_allocated", 3), ("max_memory_allocated", 10)):
        monkeypatch.setattr(torch.cuda, name, lambda gpu, found=found: asked.append(gpu) or found)
    assert peak_bytes(lambda: None, "cuda:1") == 7
    assert set(asked) == {"cuda:1"}


def test_the_cache_of_fewer_key_heads_is_smaller_by_as_much():
    rows = suite(attentions={"mha": heads(), "mqa": heads(1)}, causal=[True]).run()
    bytes_of = {(row["attention"], row["n"]): row["cache B/token"] for row in rows}
    for length in (8, 16):
        assert bytes_of["mha", length] == 2 * DIM * 4
        assert bytes_of["mqa", length] == 2 * DIM * 4 / HEADS
        assert bytes_of["sdpa", length] is None


@pytest.mark.usefixtures("either_cpu")
def test_flops_are_those_of_the_matrix_products():
    options = {"backward": False, "projections": True, "lengths": [16], "causal": [False]}
    sdpa, mha = suite(attentions={"mha": heads()}, **options).run()
    assert sdpa["GFLOP"] == mha["GFLOP"] == (4 * 2 * 16 * DIM * DIM + 4 * 16 * 16 * DIM) / 1e9
    assert mha["parameters"] == sdpa["parameters"] == 4 * (DIM * DIM + DIM)


def test_what_cannot_be_causal_is_left_out_and_alone_refused():
    xca = heads(kernel=XCAKernel)
    rows = suite(attentions={"mha": heads(), "xca": xca}).run()
    names = {(row["table"].split(", ")[1], row["attention"]) for row in rows}
    assert names == {
        *(("bidirectional", name) for name in ("sdpa", "mha", "xca")),
        *(("causal", name) for name in ("sdpa", "mha")),
    }
    with pytest.raises(UserError, match="no attention can run; change"):
        suite(attentions={"xca": xca}, causal=[True]).run()
    with pytest.raises(UserError, match="precisions must be"):
        made(AttentionSuite, attentions={"xca": xca}, precisions=["8"])


def test_a_length_that_would_need_too_much_memory_is_left_out():
    options = {"lengths": [8, 64], "causal": [False], "memory_limit": 1e-4}
    rows = suite(attentions={"mha": heads()}, **options).run()
    assert [(r["attention"], r["n"]) for r in rows] == [("sdpa", 8), ("sdpa", 64), ("mha", 8)]


def test_the_exponent_is_the_slope_between_logarithms():
    points = [(1024, 50.0), (4096, 1.0), (8192, 3.0), (16384, 9.0)]
    costs = [Cost(length, seconds, 0, {}) for length, seconds in points]
    assert exponent(costs) == pytest.approx(1.58496, abs=1e-4)  # log2(3)
    assert exponent(costs[:2]) is None


def test_pictures_of_time_and_memory_are_drawn(tmp_path, capsys):
    experts = partial(MixtureOfAttention, num_heads=2, num_experts=5, kernel=SoftmaxKernel)
    attentions = {"mha": heads(), "moa": experts}
    rows = suite(attentions=attentions, lengths=[8], plots=str(tmp_path), precisions=["bf16"]).run()
    assert {row["attention"] for row in rows} == {"sdpa", "mha", "moa"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{kind}_bfloat16_{view}.png"
        for kind in ("bidirectional", "causal")
        for view in ("memory", "time")
    ]
    assert "x sdpa" in capsys.readouterr().out


class Choices(AttentionChoices):
    def measure(self):
        yield from ()


def test_sizes_follow_the_suite_and_the_length_and_recurrent_alignments_are_left_out():
    strided = partial(StridedKernel, stride=5)
    linformer = partial(LinformerKernel, projected=3, max_length=10)
    attentions = {
        "mha": heads(),
        "mqa": heads(1),
        "strided": heads(kernel=strided),
        "linformer": heads(kernel=linformer),
        "bahdanau": Bahdanau,
    }
    positions = {"none": Position, "alibi": ALiBiPosition}
    chosen = Choices(attentions=attentions, positions=positions, dim=DIM, num_heads=HEADS)
    made = {name: parts for name, *parts in chosen.contestants(64)}
    assert list(made)[:4] == ["mha", "mha + alibi", "mqa", "mqa + alibi"]
    assert len(made) == 8
    kernels = {name: attention.kernel for name, (attention, _) in made.items()}
    assert (kernels["mha"].num_heads, kernels["mha"].num_kv_heads) == (HEADS, HEADS)
    assert (kernels["mqa"].num_heads, kernels["mqa"].num_kv_heads) == (HEADS, 1)
    assert kernels["strided"].stride == 8
    assert kernels["linformer"].max_length == 64
    given = Choices(attentions=attentions, dim=DIM, num_heads=HEADS, kernel={"stride": 7})
    made = {name: attention for name, attention, _ in given.contestants(64)}
    assert made["strided"].kernel.stride == 7


def test_a_size_that_no_kernel_has_is_refused():
    attentions = {"strided": heads(kernel=partial(StridedKernel, stride=5)), "mqa": heads(1)}
    with pytest.raises(UserError, match=r"kernel must have keys from \(stride\), got strid"):
        Choices(attentions=attentions, dim=DIM, num_heads=HEADS, kernel={"strid": 7})


def test_decoding_reports_every_attention_that_decodes():
    choices = {"dim": DIM, "num_heads": HEADS, "tokens": 20}
    attentions = {"mqa": heads(1), "xca": heads(kernel=XCAKernel)}
    (row,) = AttentionStepsSuite(attentions=attentions, **choices).run()
    assert (row["attention"], row["cache (bytes)"]) == ("mqa", 2 * 20 * DIM // HEADS * 4)
    assert min(row["early (us/token)"].low, row["late (us/token)"].low) > 0
    with pytest.raises(UserError, match="none of the chosen attentions supports decoding"):
        AttentionStepsSuite(attentions={"xca": heads(kernel=XCAKernel)}, **choices).run()
    with pytest.raises(UserError, match="tokens must be a whole number from 20 to"):
        made(AttentionStepsSuite, attentions=attentions, tokens=19)
