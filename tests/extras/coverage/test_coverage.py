"""Coverage against loops over single numbers; laws of all recurrent attention: tests/models."""

import pytest
import torch

from seqattn.attention.alignment import Bahdanau
from seqattn.extras.coverage.coverage import Coverage, coverage_loss
from seqattn.models.base import PLAIN
from seqattn.ops.cross_entropy import LossTerms
from seqattn.tokens import PAD
from tests.builders import padded, randomised
from tests.models.recurrents import attended, make_recurrent, queries_and_memory

B, T, S, Q, M = 2, 4, 5, 6, 3
REAL = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.bool)
SOURCES = padded([[4, 5, 6, 7, 3], [9, 4, 3]])
TARGETS = padded([[2, 5, 6], [2, 4, 4, 9, 10]])
FOLLOWING = padded([[5, 6, 3], [4, 4, 9, 10, 3]])


def test_weights_and_gradients_equal_the_formula_written_out():
    alignment = randomised(Coverage(Q, M, dim=4).double(), scale=0.7)
    score, (query, memory) = alignment.score, queries_and_memory(T, S, Q, M)
    rows = []
    for row in range(B):
        seen = [torch.zeros((), dtype=torch.float64)] * S
        for t in range(T):
            exps = [
                (
                    score.v.weight[0]
                    @ torch.tanh(
                        score.key.weight @ memory[row, i]
                        + score.query.weight @ query[row, t]
                        + score.coverage * seen[i]
                    )
                ).exp()
                * REAL[row, i]
                for i in range(S)
            ]
            weights = [e / sum(exps) for e in exps]
            seen = [before + now for before, now in zip(seen, weights)]
            rows.append(torch.stack(weights))
    expected = torch.stack(rows).view(B, T, S)
    pairs = [attended(alignment, query, memory, REAL)[:2], (expected, expected @ memory)]
    upstream, leaves = torch.randn(B, T, M).double(), [query, memory, *alignment.parameters()]
    found = [(*pair, *torch.autograd.grad((pair[1] * upstream).sum(), leaves)) for pair in pairs]
    for one, other in zip(*found, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other)


def test_where_it_starts_it_is_bahdanaus_attention():
    query, memory = queries_and_memory(T, S, Q, M)
    made = []
    for kind in (Bahdanau, Coverage):
        torch.manual_seed(0)
        made.append(kind(Q, M).double())
    for one, other in zip(*(attended(alignment, query, memory, REAL)[:2] for alignment in made)):
        torch.testing.assert_close(one, other)


def test_the_loss_equals_its_sum_written_out_and_counts_real_tokens_only():
    weights = torch.rand(B, T, S, dtype=torch.float64)
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    expected = sum(
        min(weights[row, t, i], weights[row, :t, i].sum())
        for row in range(B)
        for t in range(T)
        for i in range(S)
        if real[row, t]
    )
    torch.testing.assert_close(coverage_loss(weights, real), expected)
    elsewhere = torch.eye(4)[None]  # each step on its own annotation
    assert coverage_loss(elsewhere, torch.ones(1, 4, dtype=torch.bool)) == 0
    assert coverage_loss(elsewhere[:, [0, 0, 0, 1]], torch.ones(1, 4, dtype=torch.bool)) == 2


def losses(weight, terms=PLAIN, repeat=1):
    torch.manual_seed(0)
    model = make_recurrent("coverage").double()
    alignment = model.decoder.cross_attention
    alignment.loss_weight = weight
    model.__class__ = alignment.model_type(model.__class__)
    sides = [side.repeat(repeat, 1) for side in (SOURCES, TARGETS, FOLLOWING)]
    return model, model.loss(*sides, terms)


def test_the_model_adds_its_loss_by_its_weight_and_leaves_the_likelihood():
    (model, plain), (_, more) = losses(0.0), losses(0.5)
    state = model.start(model.encode(SOURCES), cached=False)
    weights = model.features(TARGETS, state, need_weights=True).weights
    expected = 0.5 * coverage_loss(weights, FOLLOWING != PAD)
    torch.testing.assert_close(more.smoothed - plain.smoothed, expected)
    torch.testing.assert_close(more.nll, plain.nll)


@pytest.mark.parametrize(("terms", "passes"), [({"r_drop": 1.0}, 2), ({"simcut": 1.0}, 1)])
def test_of_two_passes_those_count_that_the_likelihood_counts(terms, passes):
    once = losses(0.5)[1].smoothed - losses(0.0)[1].smoothed
    twice = [losses(weight, LossTerms(**terms), repeat=2)[1].smoothed for weight in (0.0, 0.5)]
    torch.testing.assert_close(twice[1] - twice[0], passes * once)
