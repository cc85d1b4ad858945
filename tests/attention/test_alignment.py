"""Bahdanau's and Luong's attention against loops over single numbers."""

import math
from functools import partial

import pytest
import torch

from seqattn.attention.alignment import (
    Bahdanau,
    Luong,
    NoAlignment,
)
from seqattn.attention.local_alignment import LuongLocal, LuongLocalPredictive
from seqattn.errors import UserError
from tests.builders import CONF, load_choice, randomised

B, T, S, Q, M, K = 3, 4, 7, 6, 5, 2
REAL = torch.tensor(
    [[0, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0]], dtype=torch.bool
)
SCORES = ("dot", "general", "concat", "scaled")
KINDS = {
    "bahdanau": Bahdanau,
    "narrow": partial(Bahdanau, dim=3),
    **{score: partial(Luong, score=score) for score in SCORES},
    **{f"m-{score}": partial(LuongLocal, score=score, window=2) for score in SCORES},
    **{f"p-{score}": partial(LuongLocalPredictive, score=score, window=2) for score in SCORES},
}


def make(name, query_dim=Q, memory_dim=M):
    memory_dim = query_dim if name.endswith(("dot", "scaled")) else memory_dim
    torch.manual_seed(0)
    alignment = KINDS[name](query_dim=query_dim, memory_dim=memory_dim)
    return randomised(alignment.double(), scale=0.5), memory_dim


def inputs(memory_dim, rows=B, seed=1):
    draw = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, T, Q, generator=draw, dtype=torch.float64)
    memory = torch.randn(B, S, memory_dim, generator=draw, dtype=torch.float64)
    steps = torch.arange(T).expand(rows, T) + torch.arange(rows)[:, None]
    return query.requires_grad_(), memory.requires_grad_(), steps


def score_of(alignment, name, h, s):
    """The published formula for one annotation and one state."""
    parts = alignment.score
    if name in ("bahdanau", "narrow"):
        return parts.v.weight[0] @ torch.tanh(parts.key.weight @ h + parts.query.weight @ s)
    if name.endswith("concat"):
        w = torch.cat((parts.key.weight, parts.query.weight), dim=1)
        return parts.v.weight[0] @ torch.tanh(w @ torch.cat((h, s)))
    if name.endswith("general"):
        return h @ parts.key.weight.T @ s
    return h @ s / (math.sqrt(len(s)) if name.endswith("scaled") else 1)


def written_out(alignment, name, query, memory, steps):
    """Weights and contexts, a number at a time."""
    weights = torch.zeros(query.shape[0], T, S, dtype=torch.float64)
    for row in range(query.shape[0]):
        sentence = row * B // query.shape[0]
        places = [i for i in range(S) if REAL[sentence, i]]
        for t in range(T):
            s, center, near = query[row, t], None, [1.0] * len(places)
            if name.startswith("m-"):
                center = float(steps[row, t])
            elif name.startswith("p-"):
                inner = alignment.v_p.weight[0] @ torch.tanh(alignment.w_p.weight @ s)
                center = len(places) * torch.sigmoid(inner)
                near = [torch.exp(-((i - center) ** 2) / 2.0) for i in range(len(places))]
            inside = [i for i in range(len(places)) if center is None or abs(i - center) <= 2]
            exps = [score_of(alignment, name, memory[sentence, places[i]], s).exp() for i in inside]
            for i, e in zip(inside, exps):
                weights[row, t, places[i]] = e / sum(exps) * near[i]
    context = torch.stack(
        [weights[row] @ memory[row * B // query.shape[0]] for row in range(query.shape[0])]
    )
    return weights, context


@pytest.mark.parametrize("name", KINDS)
def test_weights_contexts_and_gradients_equal_the_formula_written_out(name):
    alignment, memory_dim = make(name)
    query, memory, steps = inputs(memory_dim)
    context, weights, _ = alignment(query, alignment.project(memory, REAL), steps)
    expected_weights, expected = written_out(alignment, name, query, memory, steps)
    torch.testing.assert_close(weights, expected_weights)
    torch.testing.assert_close(context, expected)
    upstream = torch.randn_like(context)
    over = [query, memory, *alignment.parameters()]
    ours = torch.autograd.grad((context * upstream).sum(), over)
    theirs = torch.autograd.grad((expected * upstream).sum(), over)
    for one, other in zip(ours, theirs, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", KINDS)
def test_the_beams_of_a_sentence_share_its_annotations(name):
    alignment, memory_dim = make(name)
    query, memory, steps = inputs(memory_dim, rows=B * K)
    source = alignment.project(memory, REAL)
    assert source.keys.shape[0] == B
    context, weights, _ = alignment(query, source, steps)
    expected_weights, expected = written_out(alignment, name, query, memory, steps)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(weights.view(B * K, T, S), expected_weights)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_source_without_tokens_gives_zeros_and_no_gradient(name, dtype):
    alignment, memory_dim = make(name)
    alignment = alignment.to(dtype)
    query, memory, steps = inputs(memory_dim)
    query = query.detach().to(dtype).requires_grad_()
    memory = memory.detach().to(dtype).requires_grad_()
    context, weights, _ = alignment(query, alignment.project(memory, REAL), steps)
    assert context.dtype == dtype
    assert (context[2] == 0).all()
    assert (weights[2] == 0).all()
    context.float().square().sum().backward()
    assert (query.grad[2] == 0).all()
    assert (memory.grad[2] == 0).all()
    assert all(p.grad.isfinite().all() for p in alignment.parameters())


@pytest.mark.parametrize("name", KINDS)
def test_more_padding_on_either_side_moves_nothing(name):
    """Local attention with it: positions and lengths are each sentence's own."""
    alignment, memory_dim = make(name)
    query, memory, steps = inputs(memory_dim)
    expected, weights, _ = alignment(query, alignment.project(memory, REAL), steps)
    blank = torch.randn(B, 3, memory_dim, dtype=torch.float64)
    none = torch.zeros(B, 3, dtype=torch.bool)
    wider = torch.cat((blank, memory, blank), dim=1)
    source = alignment.project(wider, torch.cat((none, REAL, none), dim=1))
    context, wide, _ = alignment(query, source, steps)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(wide[:, :, 3:-3], weights)
    assert (wide[:, :, :3] == 0).all()
    assert (wide[:, :, -3:] == 0).all()


def test_the_predicted_position_is_a_share_of_the_sentences_own_length():
    alignment, memory_dim = make("p-general")
    with torch.no_grad():
        alignment.v_p.weight.zero_()  # sigmoid(0): half of the sentence
    query, memory, steps = inputs(memory_dim)
    source = alignment.project(memory, REAL)
    center = alignment.center(query, source, steps)
    assert torch.equal(center, torch.tensor([2.0, 3.5, 0.0]).double()[:, None].expand(B, T))


def test_windows_reach_so_many_tokens_to_either_side_of_the_targets_own_position():
    alignment, memory_dim = make("m-general")
    query, memory, _ = inputs(memory_dim)
    steps = torch.tensor([[0, 1, 5, 9]]).expand(B, T)
    weights = alignment(query, alignment.project(memory, REAL), steps).weights
    seen = [[(row > 0).nonzero()[:, 0].tolist() for row in sentence] for sentence in weights]
    assert seen[0] == [[2, 3, 4], [2, 3, 4, 5], [5], []]
    assert seen[1] == [[0, 1, 2], [0, 1, 2, 3], [3, 4, 5, 6], []]


@pytest.mark.parametrize("name", ["dot", "scaled", "m-dot", "p-scaled"])
def test_dot_products_refuse_unequal_widths(name):
    with pytest.raises(UserError) as caught:
        KINDS[name](query_dim=6, memory_dim=5)
    score = name.rpartition("-")[2]
    assert str(caught.value) == (
        f"attention.score={score} needs model.decoder_dim equal to model.encoder_dim, got 6 and "
        "5; make them equal, or set attention.score=general"
    )


def test_long_targets_are_scored_in_blocks_with_the_same_result(monkeypatch):
    alignment, memory_dim = make("bahdanau")
    query, memory, steps = inputs(memory_dim)
    source = alignment.project(memory, REAL)
    expected = alignment(query, source, steps)[0]
    monkeypatch.setattr("seqattn.attention.scores._BLOCK_NUMBERS", 1)
    torch.testing.assert_close(alignment(query, source, steps)[0], expected)


def test_without_attention_contexts_have_no_width():
    alignment = NoAlignment(query_dim=6, memory_dim=5)
    query, memory, steps = inputs(5)
    context = alignment(query, alignment.project(memory, REAL), steps).context
    assert context.shape == (B, T, 0)
    assert not list(alignment.parameters())


def test_every_choice_has_the_score_and_the_order_of_its_name():
    before = {
        path.stem: load_choice("attention", path.stem)(query_dim=4, memory_dim=4).attends_first
        for path in (CONF / "attention").glob("*.yaml")
        if path.stem.startswith(("bahdanau", "luong", "none"))
    }
    names = [f"luong_{kind}" for kind in (*SCORES, "local_m", "local_p")]
    assert before == {"bahdanau": True, "none": False, **dict.fromkeys(names, False)}
    for score in SCORES:
        assert load_choice("attention", f"luong_{score}").keywords["score"] == score
