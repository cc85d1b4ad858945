"""Ring attention: two and four ranks equal one, and one rank is softmax."""

import logging
import os
from functools import partial

import pytest
import torch
import torch.distributed as dist

from seqattn.analysis import capture
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels import ring
from seqattn.attention.kernels.ring import RingKernel, sequence_parallel
from seqattn.attention.masks import Mask, positions_of
from seqattn.errors import UserError
from seqattn.tokens import BOS, PAD
from tests.builders import (
    DIM,
    HEADS,
    POSITIONS,
    heads,
    make_attention,
    make_position,
    make_transformer,
    random_ids,
)
from tests.forked_ranks import run_ranks

B, N, CHUNK = 3, 16, 3
REAL = torch.ones(B, N, dtype=torch.bool)
REAL[1, :2] = REAL[1, 13:] = False  # padding on both sides
REAL[1, 6] = False  # and in the middle
REAL[2, 5:] = False  # none of it on the last ranks
CASES = [
    (causal, kv, scheme)
    for causal in (False, True)
    for kv, scheme in ((4, "none"), (2, "rope"), (1, "none"))
]
BLIND = torch.tensor([True, True, False])


def rings(num_kv_heads=HEADS, chunk=CHUNK):
    kernel = partial(RingKernel, chunk=chunk)
    return partial(MultiHeadAttention, num_heads=HEADS, num_kv_heads=num_kv_heads, kernel=kernel)


def of_rank(x, rank, size):
    return x.chunk(size, dim=1)[rank]


def drawn(seed):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(B, N, DIM, dtype=torch.float64, generator=source)


def attended(attention, x, real, upstream, causal, scheme):
    """Context and gradients of one call on a whole sequence, or on a part of it."""
    attention = attention.double()
    position = make_position(POSITIONS[scheme]).double()
    places = positions_of(real)
    mask = Mask(places, places, real, causal)
    x = x.clone().requires_grad_()
    out = attention(x, attention.project(x), mask, position).output
    (out * upstream).sum().backward()
    return {
        "out": out.detach(),
        "x": x.grad,
        "parameters": [parameter.grad for parameter in attention.parameters()],
    }


def encoded(model, ids, upstream):
    """Memory of a whole source, or of a part, layers recomputed in the backward pass."""
    model = model.double().train()
    memory = model.encode(ids)
    (memory.outputs * upstream).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return {"out": memory.outputs.detach(), "parameters": gradients}


def sources():
    return random_ids(B, N).masked_fill(~REAL, PAD)


def model_of(factory, position):
    return make_transformer(factory, POSITIONS[position], checkpoint_activations=True)


def refusals(rank, size):
    """What must not be asked for in a split sequence, and what is said."""
    attention, plain = make_attention(rings()), make_attention()
    model = make_transformer(rings())
    x, everyone = torch.randn(B, N // size, DIM), torch.ones(B, N // size, dtype=torch.bool)
    position = make_position(POSITIONS["none"])

    def attend(real=everyone, extra=None):
        places = positions_of(real)
        mask = Mask(places, places, real, extra=extra)
        return attention(x, attention.project(x), mask, position).output

    def enter(module):
        with sequence_parallel(module):
            pass

    def inside(call):
        with sequence_parallel(attention):
            call()

    def captured():
        with capture(attention):
            attend()

    uneven = torch.ones(B, 4 + rank, dtype=torch.bool)
    calls = {
        "softmax": lambda: enter(plain),
        "cross": lambda: enter(model),
        "extra": lambda: inside(lambda: attend(extra=torch.ones(N, N, dtype=torch.bool))),
        "capture": lambda: inside(captured),
        "uneven": lambda: inside(lambda: positions_of(uneven)),
        "decode": lambda: inside(
            lambda: model.decode(torch.full((B, 1), BOS), model.start(model.encode(sources())))
        ),
    }
    said = {}
    for name, call in calls.items():
        try:
            call()
        except (UserError, AssertionError) as error:
            said[name] = str(error)
    return said


def rank_program(rank, port, size, path):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    part = partial(of_rank, rank=rank, size=size)
    found = {}
    for case in CASES:
        causal, kv, scheme = case
        attention = make_attention(rings(kv))
        with sequence_parallel(attention):
            x, upstream = part(drawn(0)), part(drawn(1))
            found[case] = attended(attention, x, part(REAL), upstream, causal, scheme)
    attention = make_attention(rings(2))
    with sequence_parallel(attention):
        blind = part(REAL & BLIND[:, None])
        found["blind"] = attended(attention, part(drawn(0)), blind, part(drawn(1)), True, "none")
    attention = make_attention(rings(2)).bfloat16()
    with sequence_parallel(attention):
        x, places = part(drawn(0)).bfloat16(), positions_of(part(REAL))
        mask = Mask(places, places, None, causal=True)
        position = make_position(POSITIONS["none"])
        found["bfloat16"] = attention(x, attention.project(x), mask, position).output.detach()
    for position in ("sinusoidal", "rope"):
        model = model_of(rings(), position)
        with sequence_parallel(model.encoder):
            found[position] = encoded(model, part(sources()), part(drawn(1)))
    found["refusals"] = refusals(rank, size)
    torch.save(found, path / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.exhaustive)])
def ranks(request, tmp_path_factory):
    """What each of two, and of four, ranks came to."""
    path = tmp_path_factory.mktemp("ring")
    run_ranks(rank_program, request.param, request.param, path)
    return [torch.load(path / f"{rank}.pt") for rank in range(request.param)]


def assert_equal_to_one(parts, one):
    close = partial(torch.testing.assert_close, atol=1e-11, rtol=1e-10)
    for name in one.keys() - {"parameters"}:
        close(torch.cat([part[name] for part in parts], dim=1), one[name])
    for number, expected in enumerate(one["parameters"]):
        close(sum(part["parameters"][number] for part in parts), expected)


@pytest.mark.parametrize("case", CASES)
def test_ranks_equal_one_in_value_and_gradient(ranks, case):
    causal, kv, scheme = case
    one = attended(make_attention(heads(HEADS, kv)), drawn(0), REAL, drawn(1), causal, scheme)
    assert_equal_to_one([rank[case] for rank in ranks], one)


def test_a_sentence_of_nothing_but_padding_gets_zero_context_and_gradient(ranks):
    parts = [rank["blind"] for rank in ranks]
    attention = make_attention(heads(HEADS, 2))
    real = REAL & BLIND[:, None]
    one = attended(attention, drawn(0), real, drawn(1), True, "none")
    assert_equal_to_one(parts, one)
    out, gradient = (torch.cat([part[name] for part in parts], dim=1)[2] for name in ("out", "x"))
    assert torch.equal(out, attention.output.bias.expand(N, DIM))
    assert torch.equal(gradient, torch.zeros(N, DIM, dtype=torch.float64))


def test_bfloat16_without_padding_stays_close(ranks):
    low = torch.cat([rank["bfloat16"] for rank in ranks], dim=1)
    assert low.dtype == torch.bfloat16
    attention, places = make_attention(heads(HEADS, 2)).double(), torch.arange(N)
    x = drawn(0)
    exact = attention(
        x,
        attention.project(x),
        Mask(places, places, causal=True),
        make_position(POSITIONS["none"]),
    ).output
    torch.testing.assert_close(low.double(), exact, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
def test_a_model_encodes_split_sources_as_whole_ones(ranks, position):
    one = encoded(model_of(heads(), position), sources(), drawn(1))
    assert_equal_to_one([rank[position] for rank in ranks], one)


def test_what_needs_whole_sequences_is_refused(ranks):
    alone = (
        "which would attend only within a rank's part of a sequence; build it with attention=ring"
    )
    uneven = " , ".join(f"{B} x {4 + rank}" for rank in range(len(ranks))).replace(" ,", ",")
    for rank in ranks:
        assert rank["refusals"] == {
            "softmax": f"the module uses SoftmaxKernel, {alone}",
            "cross": f"decoder.layers.0.cross_attention uses SoftmaxKernel, {alone}",
            "extra": (own := "custom masks, capture and overridden weights need unsplit sequences"),
            "capture": own,
            "uneven": "all ranks must have parts of the same size, got "
            f"{uneven}; pad sequences to a multiple of the number of ranks",
            "decode": "a decoder needs unsplit sequences",
        }


# --- one rank -----------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_one_rank_is_softmax_bit_for_bit(causal):
    mine, softmax = (
        attended(make_attention(factory), drawn(0), REAL, drawn(1), causal, "rope")
        for factory in (rings(), heads())
    )
    for name in ("out", "x"):
        assert torch.equal(mine[name], softmax[name])


def test_it_says_once_that_it_is_softmax(caplog):
    ring._say_what_it_is.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            make_attention(rings())
    (record,) = caplog.records
    assert record.message.startswith("on one rank, and in decoding, ring attention is plain soft")


def test_sequences_are_split_only_where_there_are_ranks():
    with pytest.raises(AssertionError), sequence_parallel(make_attention(rings())):
        pass
