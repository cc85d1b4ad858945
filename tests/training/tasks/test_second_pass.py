"""R-Drop and SimCut: a second pass, whose distributions are drawn to those of the first."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F

from seqattn.errors import UserError
from seqattn.layers.embedding import Embedding
from seqattn.metrics.text import TextScorer
from seqattn.models.base import PLAIN
from seqattn.ops.cross_entropy import LossTerms, Mixture, cross_entropy
from seqattn.ops.layers import Dropout
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import constant
from seqattn.training.task_options import TextGeneration
from seqattn.training.tasks.settings import Optimization, draw_seed
from tests.builders import make_transformer, padded
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import make_recurrent
from tests.nodes import made
from tests.training.tasks.test_auxiliary import Logged
from tests.training.tasks.test_effective_batch import (
    SMOOTHING,
    assert_same,
    batch_of,
    fit,
    no_steps,
    rows,
    sides,
)
from tests.training.tasks.test_halving import fails_forward

T, D, V, S = 5, 6, 11, 7
TARGETS = padded([[4, 10, 7, 3], [5, 5, 6, 8, 3]]).repeat(2, 1)
ALPHA = 1.7
TERMS = pytest.mark.parametrize("term", ["r_drop", "simcut"])


def papers_loss(term, logits, targets, smoothing=SMOOTHING):
    """Sums of the cross-entropy, the divergence and the loss, from logits (2B, T, V).

    r_drop is eq. 4 of Liang et al. 2021, -log P1 - log P2 + alpha/2 (KL(P1 || P2) + KL(P2 || P1));
    simcut is eq. 5 of Gao et al. 2022, -log P1 + alpha KL(P1 || P2), gradients through both.
    """
    passes = 2 if term == "r_drop" else 1
    plain = cross_entropy(*(x[: passes * len(x) // 2] for x in (logits, targets)), smoothing)
    first, second = logits.log_softmax(-1)[targets != 0].chunk(2)
    divergence = F.kl_div(second, first, reduction="sum", log_target=True)
    if passes == 2:
        divergence = divergence + F.kl_div(first, second, reduction="sum", log_target=True)
    return plain, divergence, plain.smoothed + ALPHA / passes * divergence


def two_passes(copies):
    """Random features, weights and more of two passes, with the mixture and logits they make."""
    options = {"dtype": torch.float64, "requires_grad": True}
    features, weight = torch.randn(4, T, D, **options), torch.randn(V, D, **options)
    gate, places = torch.randn(4, T, **options), torch.randn(4, T, S, **options)
    inputs, mixture = [features, weight], None
    logits = features @ weight.T
    if copies:
        inputs += [gate, places]
        ids = torch.stack([torch.randperm(V)[:S] for _ in range(2)])
        ids = ids.repeat(2, 1)[:, None].expand(-1, T, -1)
        copy = F.logsigmoid(-gate)[..., None] + places.log_softmax(-1)
        mixture = Mixture(F.logsigmoid(gate), copy, ids)
        logits = mixture.log_probabilities(logits)
    return inputs, mixture, logits


@pytest.mark.usefixtures("blocks")
@TERMS
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_pairs_is_the_plain_one_in_value_and_gradient(term, copies, smoothing):
    inputs, mixture, logits = two_passes(copies)
    plain, divergence, expected = papers_loss(term, logits, TARGETS, smoothing)
    terms = LossTerms(**{"label_smoothing": smoothing, term: ALPHA})
    ours = blockwise_cross_entropy(*inputs[:2], TARGETS, terms, mixture)
    for got, wanted in (
        (ours.smoothed, expected),
        (ours.divergence, divergence.detach()),
        (ours.nll, plain.nll.detach()),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    assert (ours.correct, ours.tokens) == (plain.correct, plain.tokens)
    got = torch.autograd.grad(3.5 * ours.smoothed, inputs, retain_graph=True)
    assert_same(got, torch.autograd.grad(3.5 * expected, inputs), 1e-11)


@TERMS
def test_under_autocast_to_bfloat16_the_divergence_stays_close(term):
    features, weight = torch.randn(4, T, D), torch.randn(V, D, requires_grad=True)
    terms = LossTerms(**{"label_smoothing": 0.1, term: ALPHA})
    exact = blockwise_cross_entropy(features, weight, TARGETS, terms)
    with torch.autocast("cpu", torch.bfloat16):
        rough = blockwise_cross_entropy(features, weight, TARGETS, terms)
    assert rough.divergence.dtype == torch.float32
    torch.testing.assert_close(rough.divergence, exact.divergence, rtol=0.03, atol=0.0)
    gradients = [torch.autograd.grad(one.smoothed, weight)[0] for one in (rough, exact)]
    torch.testing.assert_close(*gradients, rtol=0.1, atol=0.1)
    assert not torch.equal(*gradients)


def test_words_of_the_second_half_are_cut_at_the_share_and_marks_never():
    embedding = Embedding(torch.nn.Embedding(9, 2), torch.nn.Identity()).train()
    torch.nn.init.constant_(embedding.table.weight, 1.0)
    ids = torch.tensor([2, *[7] * 5000, 3, 0]).repeat(4, 1)
    plain, embedding.cutoff = embedding(ids), 0.3
    cut = embedding(ids)
    assert torch.equal(cut[:2], plain[:2])
    gone = (cut[2:] == 0).all(dim=-1)
    assert torch.equal(cut[2:][~gone], plain[2:][~gone])  # whole vectors, the others not scaled
    assert not gone[:, [0, -2, -1]].any()
    assert float(gone[:, 1:-2].double().mean()) == pytest.approx(0.3, abs=0.02)
    assert not torch.equal(gone[0], gone[1])
    assert torch.equal(embedding.eval()(ids), plain)


def transformer(**config):
    return make_transformer(dropout=0.3, **config).double().train()


def recurrent(**config):
    return make_recurrent("luong_general", dropout=0.3, **config).double().train()


MODELS = pytest.mark.parametrize(
    "make",
    [transformer, lambda: transformer(copy=True), recurrent, lambda: recurrent(copy=True)],
    ids=["transformer", "transformer copies", "recurrent", "recurrent copies"],
)


def task_of(model, term, alpha=ALPHA, cutoff=0.3, **options):
    terms = LossTerms(**{"label_smoothing": SMOOTHING, term: alpha, "simcut_cutoff": cutoff})
    return Logged(model, Optimization(no_steps, constant(0), terms=terms, **options))


@TERMS
@MODELS
def test_a_step_minimizes_the_papers_loss_per_real_token_and_tells_the_divergence(make, term):
    pair = rows(3, seed=1)
    task = fit(task_of(make(), term), [pair])
    twice, model = batch_of(*pair).twice(), task.model
    torch.manual_seed(draw_seed(0, 0, 0, 0))
    model.zero_grad()
    logits = model(twice.source, twice.target_input)
    plain, divergence, loss = papers_loss(term, logits, twice.target_output)
    (loss / plain.tokens).backward()
    assert_same(task.gradients[0], [p.grad for p in model.parameters()], 1e-9)
    for name, value in (("loss", loss), ("nll", plain.nll), ("divergence", divergence)):
        expected = float(value.detach() / plain.tokens)
        assert task.logged[f"train/{name}"] == pytest.approx(expected, rel=1e-5)
        assert expected > 1e-4


def settled(model):
    """Turn off all dropout, so that the passes differ by the cut alone."""
    for part in model.modules():
        if hasattr(part, "p"):
            part.p = 0.0
    return model


@TERMS
@MODELS
def test_where_passes_are_alike_the_gradient_is_the_plain_one_and_simcut_sets_them_apart(
    make, term
):
    plain, alike, cut = (
        fit(task_of(settled(make()), term, *options), sides()[:3])
        for options in ((0.0, 0.3), (ALPHA, 0.0), (ALPHA, 0.3))
    )
    assert_same(alike.gradients[0], plain.gradients[0], 1e-12)
    assert alike.logged["train/divergence"] == pytest.approx(0.0, abs=1e-12)
    assert (cut.logged["train/divergence"] > 1e-4) == (term == "simcut")
    assert "train/divergence" not in plain.logged


def divisible(term, alpha=ALPHA):
    """A task that drops the same places of each row in the second pass; batches may be cut."""

    def second_dropped(x):
        first, second = x.chunk(2)
        return torch.cat((first, second * (torch.arange(x.shape[-1]) % 3 > 0)))

    task = task_of(make_transformer().double().train(), term, alpha, cutoff=0.0)
    for part in task.model.modules() if alpha else ():
        if isinstance(part, Dropout):
            part.forward = second_dropped
    return task


@TERMS
def test_accumulated_batches_and_batches_in_halves_give_the_gradient_of_one(monkeypatch, term):
    pair = rows(6, seed=3)
    parts = [tuple(side[cut] for side in pair) for cut in (slice(0, 2), slice(2, 6))]
    (whole,) = fit(divisible(term), [pair]).gradients
    (plain,) = fit(divisible(term, alpha=0.0), [pair]).gradients
    assert not torch.allclose(whole[0], plain[0])
    (summed,) = fit(divisible(term), parts, accumulate_grad_batches=2).gradients
    assert_same(summed, whole, 1e-10)
    fails_forward(monkeypatch, 6)
    (halved,) = fit(divisible(term), [pair]).gradients
    assert_same(halved, whole, 1e-10)


@TERMS
def test_a_model_that_reads_its_own_words_takes_part(term):
    forcing = TeacherForcing(schedule="constant", start=0.5)
    task = fit(task_of(recurrent(), term, teacher_forcing=forcing), sides()[:2])
    assert task.logged["train/divergence"] > 0
    assert all(gradient.isfinite().all() for gradient in task.gradients[0])


@TERMS
def test_validation_reads_once_and_another_task_of_the_model_cuts_nothing(term):
    model, batch = transformer(), batch_of(*rows(3, seed=1))
    sums = task_of(model, term).eval().validation_sums(batch)
    plain = task_of(model, term, alpha=0.0).eval().validation_sums(batch)
    assert all(map(torch.equal, sums, plain))
    assert sums[3] == batch.target_tokens
    assert model.source_embedding.cutoff == model.target_embedding.cutoff == 0
    assert PLAIN.divergence_weight == 0


def test_both_at_once_are_refused():
    with pytest.raises(UserError, match="r_drop and simcut are mutually exclusive; set one of"):
        made(TextGeneration, name="x", scorer=TextScorer(), r_drop=5, simcut=3)


@pytest.mark.parametrize("name", [term.name for term in fields(LossTerms)])
def test_each_term_changes_the_loss(name):
    batch, cutting = batch_of(*rows(3, seed=1)), {"simcut": 3.0} if "simcut_" in name else {}

    def loss(**terms):
        torch.manual_seed(0)
        task = Logged(
            transformer(), Optimization(no_steps, constant(0), terms=LossTerms(**cutting, **terms))
        )
        return float(task.train().training_loss(batch).total.detach())

    assert loss() != loss(**{name: 0.4})


def _rank(rank, port, path, term):
    join(rank, port, 2)
    task = fit(divisible(term), sides()[rank:2:2], devices=2, strategy="ddp")
    torch.save(task.gradients, path / f"{rank}.pt")


@TERMS
@pytest.mark.exhaustive
def test_two_ranks_give_the_gradient_of_the_one_big_batch(tmp_path, term):
    run_ranks(_rank, 2, tmp_path, term)
    (wanted,) = fit(divisible(term), sides()[:2], accumulate_grad_batches=2).gradients
    for rank in (0, 1):
        assert_same(torch.load(tmp_path / f"{rank}.pt")[0], wanted, 1e-10)
