"""SimCut: a second pass with words cut, whose distribution is drawn to that of the first."""

from dataclasses import fields

import pytest
import torch
import torch.nn.functional as F

from seqattn.errors import UserError
from seqattn.layers.embedding import Embedding
from seqattn.metrics.text import TextScorer
from seqattn.models.base import PLAIN
from seqattn.ops.cross_entropy import LossTerms, cross_entropy
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import constant
from seqattn.training.task_options import TextGeneration
from seqattn.training.tasks.settings import Optimization, draw_seed
from tests.builders import make_transformer
from tests.forked_ranks import join, run_ranks
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
from tests.training.tasks.test_r_drop import (
    ALPHA,
    MODELS,
    REAL,
    TARGETS,
    recurrent,
    transformer,
    two_passes,
)


def kl(first, second):
    """KL(P1 || P2) of log-probabilities, gradients through both (Gao et al. 2022, eq. 5)."""
    return F.kl_div(second, first, reduction="sum", log_target=True)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_pairs_is_the_plain_one_in_value_and_gradient(copies, smoothing):
    inputs, mixture, logits = two_passes(copies)
    features, weight = inputs[:2]
    intact = cross_entropy(logits[:2], TARGETS[:2], smoothing)
    apart = kl(*(part[REAL[:2]] for part in logits.log_softmax(-1).chunk(2)))
    terms = LossTerms(label_smoothing=smoothing, simcut=ALPHA)
    ours = blockwise_cross_entropy(features, weight, TARGETS, terms, mixture)
    wanted = intact.smoothed + ALPHA * apart
    torch.testing.assert_close(ours.smoothed, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.divergence, apart.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.nll, intact.nll.detach(), rtol=1e-12, atol=1e-12)
    assert (ours.correct, ours.tokens) == (intact.correct, 9)
    got = torch.autograd.grad(3.5 * ours.smoothed, inputs, retain_graph=True)
    want = torch.autograd.grad(3.5 * wanted, inputs)
    assert_same(got, want, 1e-11)


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


def optimization(alpha=ALPHA, cutoff=0.3):
    terms = {"label_smoothing": SMOOTHING, "simcut": alpha, "simcut_cutoff": cutoff}
    return Optimization(no_steps, constant(0), terms=LossTerms(**terms))


@MODELS
def test_a_step_minimizes_the_papers_loss_per_real_token_and_tells_the_divergence(make):
    pair = rows(3, seed=1)
    task = fit(Logged(make(), optimization()), [pair])
    batch, model = batch_of(*pair), task.model
    twice = batch.twice()
    torch.manual_seed(draw_seed(0, 0, 0, 0))
    model.zero_grad()
    logits = model(twice.source, twice.target_input)
    intact = cross_entropy(logits[:3], batch.target_output, SMOOTHING)
    divergence = kl(*logits.log_softmax(-1)[twice.target_output != 0].chunk(2))
    paper = (intact.smoothed + ALPHA * divergence) / batch.target_tokens
    paper.backward()
    assert_same(task.gradients[0], [p.grad for p in model.parameters()], 1e-9)
    tokens = batch.target_tokens
    for name, value in (("loss", paper), ("nll", intact.nll / tokens)):
        assert task.logged[f"train/{name}"] == pytest.approx(float(value.detach()), rel=1e-5)
    each = float(divergence.detach() / tokens)
    assert task.logged["train/divergence"] == pytest.approx(each, rel=1e-5)
    assert each > 1e-4


def settled(model):
    """Turn off all dropout, so that the passes differ by the cut alone."""
    for part in model.modules():
        if hasattr(part, "p"):
            part.p = 0.0
    return model


@MODELS
def test_the_cut_sets_the_passes_apart_and_without_it_the_gradient_is_the_plain_one(make):
    plain, whole, cut = (
        fit(Logged(settled(make()), optimization(*terms)), sides()[:3])
        for terms in ((0.0, 0.3), (ALPHA, 0.0), (ALPHA, 0.3))
    )
    assert_same(whole.gradients[0], plain.gradients[0], 1e-12)
    assert whole.logged["train/divergence"] == pytest.approx(0.0, abs=1e-12)
    assert cut.logged["train/divergence"] > 1e-4
    assert "train/divergence" not in plain.logged


def _cut_alike(task):
    """Cut by a word's id and drop nothing, so that batches may be divided."""

    def cut(embedding, ids, positions=None, factors=None):
        x = plain(embedding, ids, positions, factors)
        gone = (ids % 3 == 0) & (torch.arange(len(ids))[:, None] >= len(ids) // 2)
        return x.masked_fill(gone[..., None] & (ids > 3)[..., None], 0.0)

    plain = Embedding.forward
    for part in (task.model.source_embedding, task.model.target_embedding):
        part.forward = cut.__get__(part)
    settled(task.model)
    return task


def test_accumulated_batches_and_batches_in_halves_give_the_gradient_of_one(monkeypatch):
    pair = rows(6, seed=3)
    parts = [tuple(side[cut] for side in pair) for cut in (slice(0, 2), slice(2, 6))]

    def make():
        return _cut_alike(Logged(make_transformer().double().train(), optimization(cutoff=0.0)))

    (whole,) = fit(make(), [pair]).gradients
    (plain,) = fit(Logged(make().model, optimization(0.0)), [pair]).gradients
    assert not torch.allclose(whole[0], plain[0])
    (summed,) = fit(make(), parts, accumulate_grad_batches=2).gradients
    assert_same(summed, whole, 1e-10)
    fails_forward(monkeypatch, 6)
    (halved,) = fit(make(), [pair]).gradients
    assert_same(halved, whole, 1e-10)


def test_a_model_that_reads_its_own_words_takes_part():
    plan = Optimization(
        no_steps,
        constant(0),
        TeacherForcing(schedule="constant", start=0.5),
        terms=LossTerms(simcut=ALPHA),
    )
    task = fit(Logged(recurrent(), plan), sides()[:2])
    assert task.logged["train/divergence"] > 0
    assert all(gradient.isfinite().all() for gradient in task.gradients[0])


def test_validation_reads_once_and_another_task_of_the_model_cuts_nothing():
    model, batch = transformer(), batch_of(*rows(3, seed=1))
    task = Logged(model, optimization()).eval()
    mine = task.validation_sums(batch)
    plain = Logged(model, optimization(0.0)).eval()
    for one, other in zip(mine, plain.validation_sums(batch), strict=True):
        assert torch.equal(one, other)
    assert model.source_embedding.cutoff == model.target_embedding.cutoff == 0
    assert PLAIN.divergence_weight == 0


def test_what_it_excludes_is_refused():
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


def _rank(rank, port, path):
    join(rank, port, 2)
    model = make_transformer().double().train()
    task = _cut_alike(Logged(model, optimization(cutoff=0.0)))
    fit(task, sides()[rank:2:2], devices=2, strategy="ddp")
    torch.save(task.gradients, path / f"{rank}.pt")


@pytest.mark.exhaustive
def test_two_ranks_give_the_gradient_of_the_one_big_batch(tmp_path):
    run_ranks(_rank, 2, tmp_path)
    task = _cut_alike(Logged(make_transformer().double().train(), optimization(cutoff=0.0)))
    (wanted,) = fit(task, sides()[:2], accumulate_grad_batches=2).gradients
    for rank in (0, 1):
        assert_same(torch.load(tmp_path / f"{rank}.pt")[0], wanted, 1e-10)
