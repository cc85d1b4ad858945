"""Span models: what may move a row's scores, what padding is worth, and that they learn."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from seqattn.analysis import capture
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.extras.answers.span_head import SpanHead, SpanPairs
from seqattn.extras.answers.span_matching import MATCHES, WordMatch
from seqattn.extras.answers.span_task import log_probabilities
from seqattn.positions import LearnedPosition, RotaryPosition, SinusoidalPosition
from seqattn.tokens import PAD
from tests.builders import (
    attention_variants,
    heads,
    load_variant,
    make_attention,
)
from tests.extras.answers.span_models import (
    CONTEXTS,
    QUESTIONS,
    Inputs,
    inputs,
    make_recurrent,
    make_transformer_reader,
)
from tests.forked_ranks import run_ranks
from tests.models.test_copies import assert_copies_say_the_same
from tests.models.test_no_waiting import meta, operations, padded_right  # noqa: F401
from tests.tolerance import close
from tests.training.test_parameter_groups import frozen_names
from tests.training.test_sharding import gradients_in_shards

MODELS = {
    "lstm": make_recurrent,
    "gru, deep": partial(make_recurrent, cell="gru", encoder_layers=2, model_layers=2),
    "lstm, no match": partial(make_recurrent, word_match=False),
    "transformer, no match": partial(
        make_transformer_reader, position=SinusoidalPosition, word_match=False
    ),
    "transformer, rope, post-norm": partial(
        make_transformer_reader, position=RotaryPosition, pre_norm=False
    ),
    "transformer, learned": partial(
        make_transformer_reader, position=partial(LearnedPosition, max_length=20)
    ),
}
EVERYTHING = {"word_clues": True, "characters": True, "hidden_words": 0.5, "joint_spans": True}
MODELS["lstm, everything, bidaf"] = partial(make_recurrent, matching="bidaf", **EVERYTHING)
MODELS["transformer, everything, qanet"] = partial(
    make_transformer_reader, position=RotaryPosition, matching="qanet", **EVERYTHING
)
EVERYTHING_ELSE = [make for name, make in MODELS.items() if "everything" in name]
for variant in ("moa", "lsh, small", "linformer, small", "sliding_window, small"):
    MODELS[f"transformer, {variant}"] = partial(make_transformer_reader, load_variant(variant))


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


@torch.inference_mode()
def test_scores_depend_on_neither_neighbors_nor_padding(model):
    rows = [model(inputs([question], [context])) for question, context in zip(QUESTIONS, CONTEXTS)]
    batches = [
        inputs(question_left=question_left, context_left=context_left)
        for question_left in (False, True)
        for context_left in (False, True)
    ]
    blank = torch.zeros(3, 2, dtype=torch.long)
    batch = batches[0]
    more = batch._replace(
        question=torch.cat((blank, batch.question, blank), dim=1),
        context=torch.cat((blank, batch.context, blank), dim=1),
        match=F.pad(batch.match, (0, 0, 2, 2)),
    )
    for batch in (*batches, more):
        scores_of = model(batch)
        for scores, name in zip(scores_of, ("start", "end")):
            for row, expected in enumerate(rows):
                alone = getattr(expected, name)[0]
                real = torch.cat((batch.context[row] != 0, torch.ones(1, dtype=torch.bool)))
                close(scores[row, real], alone, 5e-5)
                assert (scores[row, ~real] == -torch.inf).all()
                assert alone.isfinite().all()
        if scores_of.pair is None:
            continue
        for row, expected in enumerate(rows):
            real = batch.context[row] != 0
            for got, want in zip(scores_of.spans(20), expected.spans(20)):
                inside = got[row] if got.ndim == 1 else got[row, real]
                close(inside, want[0], 5e-5)


def test_scores_depend_on_the_question_and_on_every_token_of_the_context():
    for model in (make_recurrent(), make_transformer_reader()):
        batch = inputs()
        base = model(batch).start
        for row in range(3):
            asked = batch.question.clone()
            asked[row, 0] = 10
            moved = (model(batch._replace(question=asked)).start - base).nan_to_num(0).abs()
            assert moved[row].max() > 1e-4
            assert moved[torch.arange(3) != row].max() < 1e-5
        for place in range(8):
            read = batch.context.clone()
            read[0, place] = 11 - read[0, place] or 4
            moved = (model(batch._replace(context=read)).start[0] - base[0]).abs()
            assert moved[-1] > 1e-6 or moved.max() > 1e-4


@pytest.mark.parametrize(
    ("asked_for", "left_out", "first"),
    [({}, {"word_match": False}, 0), ({"word_clues": True}, {}, MATCHES)],
    ids=["matches", "clues"],
)
def test_matches_and_clues_count_only_where_they_are_asked_for(asked_for, left_out, first):
    for make in (make_recurrent, make_transformer_reader):
        batch = inputs()
        match = batch.match.clone()
        match[..., first:] = 1 - match[..., first:]
        other = batch._replace(match=match)
        with_, without = make(**asked_for), make(**left_out)
        assert not torch.allclose(with_(batch).end[0], with_(other).end[0])
        assert torch.equal(without(batch).end, without(other).end)


def test_pairs_are_bilinear_in_their_ends_beside_a_number_for_their_length():
    torch.manual_seed(0)
    pairs = SpanPairs(6)
    pairs.length.data.normal_()
    features = torch.randn(2, 40, 6)
    scores = pairs(features)
    assert scores.shape == (2, 40, 32)
    for first, more in ((0, 0), (3, 7), (2, 31), (39, 0)):
        ends = pairs.first(features[1, first]) @ pairs.last(features[1, first + more]) / 6**0.5
        torch.testing.assert_close(scores[1, first, more], ends + pairs.length[more])


def test_a_word_that_is_hidden_in_training_is_unknown_wherever_it_stands():
    model = make_recurrent(hidden_words=0.5, characters=True).train()
    batch = inputs([[5, 4, 5, 3]], [[4, 5, 6, 5, 0]])
    masks = (Mask.full(batch.question != 0), Mask.full(batch.context != 0))
    hidden = model.eval().embedding(torch.ones(1, 1, dtype=torch.long))[0, 0]
    seen = set()
    for seed in range(40):
        torch.manual_seed(seed)
        question, context = model.train().embedded(batch, *masks)
        assert torch.equal(question[0, 0], question[0, 2])
        assert torch.equal(question[0, 0], context[0, 1])
        assert torch.equal(context[0, 1], context[0, 3])
        seen.add(tuple(torch.equal(context[0, at], hidden) for at in (0, 1, 2)))
    assert len(seen) == 8
    shown = model.eval().embedded(batch, *masks)[1]
    assert not any(torch.equal(shown[0, at], hidden) for at in range(4))


@torch.inference_mode()
def test_scores_without_a_question_depend_on_no_padding_either(model):
    alone, padded = inputs([[PAD]], CONTEXTS[1:2]), inputs()
    padded.question[1] = PAD
    length = int((alone.context != PAD).sum())
    for got, want in zip(model(padded)[:2], model(alone)[:2]):
        close(got[1, :length], want[0, :length], 5e-5)
        close(got[1, -1], want[0, -1], 5e-5)


def test_an_empty_context_or_question_gives_finite_scores_and_gradients():
    for make in (make_recurrent, make_transformer_reader, *EVERYTHING_ELSE):
        batch = inputs()
        batch.context[1] = 0
        batch.question[2] = 0
        model = make()
        scores = model(batch)
        assert (scores.start[1, :-1] == -torch.inf).all()
        assert scores.start[:, -1].isfinite().all()
        F.cross_entropy(scores.start, torch.tensor([2, 8, 1])).backward(retain_graph=True)
        if scores.pair is not None:
            log_probabilities(scores, torch.tensor([[[2, 3]], [[8, 8]], [[1, 1]]])).sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_every_parameter_gets_a_gradient():
    plain = (make_recurrent, partial(make_transformer_reader, position=SinusoidalPosition))
    for make in (*plain, *EVERYTHING_ELSE):
        model = make()
        scores = model(inputs())
        gold = torch.tensor([[1, 1], [8, 8], [2, 4]])
        log_probabilities(scores, gold[:, None]).sum().backward()
        still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        # a bias on all keys alike moves no softmax
        assert [n for n in still if not n.endswith(("key.bias", "asked.bias"))] == []


def test_word_match_averages_the_question_by_likeness():
    torch.manual_seed(0)
    match = WordMatch(6)
    context, question = torch.randn(2, 4, 6), torch.randn(2, 3, 6)
    asking = torch.tensor([[True, True, False], [True, True, True]])
    features = torch.rand(2, 4, 4)
    out = match(context, question, asking, features)
    for row in range(2):
        words = question[row, asking[row]]
        scores = match.alike(context[row]).relu() @ match.alike(words).relu().T
        torch.testing.assert_close(out[row, :, 6:12], scores.softmax(1) @ words)
    assert torch.equal(out[..., :6], context)
    assert torch.equal(out[..., 12:], features)


def test_the_head_is_bilinear_in_the_summary_of_the_question():
    torch.manual_seed(0)
    head = SpanHead(6)
    features, question = torch.randn(1, 4, 6), torch.randn(1, 3, 6)
    real = torch.tensor([[True, True, True, False]])
    scores = head(features, real, question, torch.ones(1, 3, dtype=torch.bool))
    weights = (question[0] @ head.asked.weight[0]).softmax(0)
    summary = weights @ question[0]
    want = features[0, :3] @ head.end(summary) / 6**0.5
    torch.testing.assert_close(scores.end[0, :3], want)
    none = head.none(torch.cat((summary, features[0, :3].amax(0))))
    torch.testing.assert_close(torch.stack((scores.start[0, -1], scores.end[0, -1])), none)


def test_what_the_context_hears_can_be_watched():
    for make in (make_recurrent, make_transformer_reader):
        model, batch = make(), inputs()
        before = model(batch).start
        with capture(model) as maps:
            assert torch.equal(model(batch).start, before)
        (weights,) = maps["question_attention"]  # (B, H, S, Q)
        asking = (batch.question != 0)[:, None, None, :].expand_as(weights)
        assert (weights[~asking] == 0).all()
        torch.testing.assert_close(weights.sum(dim=3), torch.ones(3, 4, 8))


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_a_tiny_model_learns_to_find_the_word_that_is_asked_for(kind):
    """The answer is the word and what follows it; there is none where the word is not there."""
    torch.manual_seed(0)
    source = torch.Generator().manual_seed(0)
    make = {
        "recurrent": partial(make_recurrent, word_match=False),
        "transformer": partial(make_transformer_reader, position=SinusoidalPosition),
    }[kind]
    model = make(dim=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def batch(rows):
        contexts = torch.stack([torch.randperm(7, generator=source) + 4 for _ in range(rows)])
        place = torch.randint(0, 8, (rows,), generator=source)
        asked = torch.where(place < 7, contexts.gather(1, place.clamp(max=6)[:, None])[:, 0], 0)
        missing = place == 7
        asked = torch.where(missing, contexts[:, 0], asked)
        contexts[missing, 0] = 3
        start = torch.where(missing, 7, place)
        end = torch.where(missing, 7, (place + 1).clamp(max=6))
        question = torch.stack((asked, torch.full_like(asked, 3)), dim=1)
        match = torch.zeros(rows, 7, 4)
        match[..., 0] = contexts == asked[:, None]
        return Inputs(question, contexts, match), start, end

    for _ in range(300):
        read, start, end = batch(32)
        scores = model(read)
        loss = F.cross_entropy(scores.start, start) + F.cross_entropy(scores.end, end)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    read, start, end = batch(200)
    scores = model.eval()(read)
    right = (scores.start.argmax(1) == start) & (scores.end.argmax(1) == end)
    assert right.float().mean() > 0.9


def test_a_stack_says_how_much_it_can_read():
    limited = partial(LearnedPosition, max_length=9)
    assert make_transformer_reader(position=limited).max_source_length == 9
    short = make_transformer_reader(load_variant("linformer, small"))
    assert short.max_source_length == make_attention(load_variant("linformer, small")).max_length
    assert make_transformer_reader().max_source_length is None
    assert make_recurrent().max_source_length is None


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(UserError, match=r"^dim must be even, got 9"):
        make_recurrent(attention=heads(3, 3), dim=9)
    with pytest.raises(UserError, match=r"^cell must be one of lstm, gru, got 'rnn'"):
        make_recurrent(cell="rnn")
    for make in (make_recurrent, make_transformer_reader):
        with pytest.raises(UserError, match=r"^dim must be a whole number from 1 to 65,536, got 0"):
            make(dim=0)


@pytest.mark.parametrize("make", [make_recurrent, make_transformer_reader])
def test_a_copy_says_the_same_and_shares_no_weights(make):
    assert_copies_say_the_same(make(), (inputs(),))


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (make_recurrent, "embeddings"),
        (make_transformer_reader, "reader.layers.0-1"),
    ],
)
def test_parts_of_it_can_be_frozen(make, pattern):
    assert frozen_names(make(), pattern)


@pytest.mark.parametrize("make", [make_recurrent, make_transformer_reader])
def test_a_step_reads_no_number_back(meta, make):  # noqa: F811
    given = Inputs(*(part.to(meta) for part in inputs()))
    model = make().to(meta).train()
    with padded_right(), operations():
        start, end, _ = model(given)
    (start.logsumexp(1) + end.logsumexp(1)).sum().backward()


def loss_of(model, seed):
    rows = slice(seed, seed + 2)
    given = inputs(QUESTIONS[rows], CONTEXTS[rows])
    scores = model(given._replace(match=given.match.double()))
    return -sum(score.log_softmax(dim=1)[:, 1].sum() for score in scores[:2])


def test_the_mean_gradient_of_two_ranks_in_shards_is_that_of_the_whole_model():
    kinds = [("spans", make_transformer_reader), ("recurrent", make_recurrent)]
    run_ranks(gradients_in_shards, 2, kinds, loss_of)


@pytest.mark.exhaustive
def test_it_is_so_with_every_attention():
    kinds = [
        (name, partial(make_transformer_reader, load_variant(name)))
        for name in attention_variants()
    ]
    run_ranks(gradients_in_shards, 2, kinds, loss_of)
