"""R-Drop: two passes with dropout, whose distributions are drawn together."""

import pytest
import torch
import torch.nn.functional as F

from seqattn.ops.cross_entropy import LossTerms, Mixture, cross_entropy
from seqattn.ops.layers import Dropout
from seqattn.ops.vocabulary_loss import blockwise_cross_entropy
from seqattn.training.forcing import TeacherForcing
from seqattn.training.schedules import constant
from seqattn.training.tasks.settings import Optimization, draw_seed
from tests.builders import make_transformer, padded
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import make_recurrent
from tests.training.tasks.test_auxiliary import Logged
from tests.training.tasks.test_effective_batch import (
    SMOOTHING,
    assert_same,
    batch_of,
    fit,
    no_steps,
    rows,
    sides,
    task_of,
)
from tests.training.tasks.test_halving import fails_forward

T, D, V, S = 5, 6, 11, 7
TARGETS = padded([[4, 10, 7, 3], [5, 5, 6, 8, 3]]).repeat(2, 1)
REAL = TARGETS != 0
ALPHA = 1.7


def divergence(log_probabilities):
    """Both KL divergences of (2B, T, V), by PyTorch, over real tokens."""
    first, second = log_probabilities.chunk(2)
    both = F.kl_div(second, first, reduction="none", log_target=True)
    both = both + F.kl_div(first, second, reduction="none", log_target=True)
    return both[REAL[:2]].sum()


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
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_pairs_is_the_plain_one_in_value_and_gradient(copies, smoothing):
    inputs, mixture, logits = two_passes(copies)
    features, weight = inputs[:2]
    plain = cross_entropy(logits, TARGETS, smoothing)
    apart = divergence(logits.log_softmax(-1))
    terms = LossTerms(label_smoothing=smoothing, r_drop=ALPHA)
    ours = blockwise_cross_entropy(features, weight, TARGETS, terms, mixture)
    wanted = plain.smoothed + ALPHA / 2 * apart
    torch.testing.assert_close(ours.smoothed, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.divergence, apart.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.nll, plain.nll.detach(), rtol=1e-12, atol=1e-12)
    assert (ours.correct, ours.tokens) == (plain.correct, 18)
    got = torch.autograd.grad(3.5 * ours.smoothed, inputs, retain_graph=True)
    want = torch.autograd.grad(3.5 * wanted, inputs)
    assert_same(got, want, 1e-11)


@pytest.mark.parametrize("term", ["r_drop", "simcut"])
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


def transformer(**config):
    return make_transformer(dropout=0.3, **config).double().train()


def recurrent(**config):
    return make_recurrent("luong_general", dropout=0.3, **config).double().train()


MODELS = pytest.mark.parametrize(
    "make",
    [transformer, lambda: transformer(copy=True), recurrent, lambda: recurrent(copy=True)],
    ids=["transformer", "transformer copies", "recurrent", "recurrent copies"],
)


def optimization(alpha=ALPHA):
    return Optimization(
        no_steps, constant(0), terms=LossTerms(label_smoothing=SMOOTHING, r_drop=alpha)
    )


@MODELS
def test_a_step_is_half_of_the_papers_loss_and_tells_the_divergence(make):
    """Liang et al. 2021, eq. 4: -log P1 - log P2 + alpha/2 (KL(P1 || P2) + KL(P2 || P1))."""
    pair = rows(3, seed=1)
    task = fit(Logged(make(), optimization()), [pair])
    batch, model = batch_of(*pair), task.model
    twice = batch.twice()
    torch.manual_seed(draw_seed(0, 0, 0, 0))
    model.zero_grad()
    logits = model(twice.source, twice.target_input)
    plain = cross_entropy(logits, twice.target_output, SMOOTHING).smoothed
    first, second = logits.log_softmax(-1)[twice.target_output != 0].chunk(2)
    one = F.kl_div(second, first, reduction="sum", log_target=True)
    other = F.kl_div(first, second, reduction="sum", log_target=True)
    paper = (plain + ALPHA / 2 * (one + other)) / batch.target_tokens
    (paper / 2).backward()
    assert_same(task.gradients[0], [p.grad for p in model.parameters()], 1e-9)
    both = float((one + other) / 2 / batch.target_tokens)
    assert task.logged["train/divergence"] == pytest.approx(both, rel=1e-5)
    assert task.logged["train/loss"] == pytest.approx(float(paper / 2), rel=1e-5)
    assert both > 1e-4


@MODELS
def test_without_dropout_there_is_no_divergence_and_the_gradient_is_the_plain_one(make):
    tasks = []
    for alpha in (0.0, 5.0):
        model = make()
        for part in model.modules():
            if hasattr(part, "p"):
                part.p = 0.0
        tasks.append(fit(Logged(model, optimization(alpha)), sides()[:3]))
    assert_same(tasks[1].gradients[0], tasks[0].gradients[0], 1e-12)
    assert tasks[1].logged["train/divergence"] == pytest.approx(0.0, abs=1e-12)
    assert "train/divergence" not in tasks[0].logged


def test_accumulated_batches_and_batches_in_halves_give_the_gradient_of_one(monkeypatch):
    def alike(task):  # dropout by a place's number in its row, so that batches may be cut
        for part in task.model.modules():
            if isinstance(part, Dropout):
                part.forward = _by_half
        return task

    pair = rows(6, seed=3)
    parts = [tuple(side[cut] for side in pair) for cut in (slice(0, 2), slice(2, 6))]
    make = lambda: alike(Logged(make_transformer().double().train(), optimization()))  # noqa: E731
    (whole,) = fit(make(), [pair]).gradients
    (summed,) = fit(make(), parts, accumulate_grad_batches=2).gradients
    assert_same(summed, whole, 1e-10)
    fails_forward(monkeypatch, 6)
    (halved,) = fit(make(), [pair]).gradients
    assert_same(halved, whole, 1e-10)


def _by_half(x):
    """Drops in the second pass alone, the same places of every row."""
    first, second = x.chunk(2)
    kept = torch.arange(x.shape[-1]) % 3 > 0
    return torch.cat((first, second * kept))


def test_a_model_that_reads_its_own_words_takes_part():
    forcing = TeacherForcing(schedule="constant", start=0.5)
    plan = Optimization(
        no_steps, constant(0), forcing, terms=LossTerms(label_smoothing=SMOOTHING, r_drop=ALPHA)
    )
    task = fit(Logged(recurrent(), plan), sides()[:2])
    assert task.logged["train/divergence"] > 0
    assert all(gradient.isfinite().all() for gradient in task.gradients[0])


def test_validation_reads_once():
    task = Logged(transformer(), optimization()).eval()
    plain = Logged(task.model, optimization(0.0)).eval()
    batch = batch_of(*rows(3, seed=1))
    for mine, theirs in zip(task.validation_sums(batch), plain.validation_sums(batch)):
        assert torch.equal(mine, theirs)


def _rank(rank, port, path):
    join(rank, port, 2)
    options = {"devices": 2, "strategy": "ddp"}
    model = make_transformer().double().train()
    task = fit(Logged(model, optimization()), sides()[rank:2:2], **options)
    torch.save(task.gradients, path / f"{rank}.pt")


@pytest.mark.exhaustive
def test_two_ranks_give_the_gradient_of_the_one_big_batch(tmp_path):
    run_ranks(_rank, 2, tmp_path)
    (wanted,) = fit(task_of(), sides()[:2], accumulate_grad_batches=2).gradients  # no dropout
    for rank in (0, 1):
        assert_same(torch.load(tmp_path / f"{rank}.pt")[0], wanted, 1e-10)
