"""Scores of the reference's own tokens."""

import math

import pytest
import torch

from seqattn.metrics.means import TokenScores
from tests.metrics.joined import joined


def batch(smoothed, nll, correct, tokens):
    return (
        torch.tensor(smoothed), torch.tensor(nll), torch.tensor(correct), torch.tensor(tokens)
    )  # fmt: skip


def test_scores_are_of_all_tokens_and_no_mean_of_batches():
    scores = TokenScores()
    scores.update(*batch(6.0, 5.0, 1, 2))
    scores.update(*batch(9.0, 7.0, 5, 8))
    found = {name: float(value) for name, value in scores.compute().items()}
    assert found == pytest.approx(
        {"loss": 1.5, "nll": 1.2, "perplexity": math.exp(1.2), "accuracy": 0.6}
    )


def test_the_states_of_two_ranks_add_up_to_the_whole():
    whole, ranks = TokenScores(), [TokenScores(), TokenScores()]
    for rank, sums in zip(ranks, [batch(6.0, 5.0, 1, 2), batch(9.0, 7.0, 5, 8)]):
        whole.update(*sums)
        rank.update(*sums)
    joined(*ranks)
    assert ranks[0].compute() == whole.compute()


def test_sums_keep_small_batches_beside_large_ones():
    """A float32 sum would lose a nat beside 2^25 of them."""
    scores = TokenScores()
    scores.update(*batch(2.0**25, 2.0**25, 0, 2**25))
    scores.update(*batch(1.0, 1.0, 1, 1))
    assert float(scores["nll"].mean_value) == 2**25 + 1
    assert float(scores["nll"].weight) == 2**25 + 1


def test_a_loss_with_a_graph_keeps_none():
    weight = torch.ones((), requires_grad=True)
    scores = TokenScores()
    scores.update(weight * 2, weight * 2, torch.tensor(0), torch.tensor(1))
    assert not scores["nll"].mean_value.requires_grad
    assert not scores["loss"].mean_value.requires_grad


def test_a_nan_leaves_the_count_and_the_other_means_alone():
    scores, count = TokenScores(), torch.tensor(100)
    nan = torch.tensor(math.nan)
    scores.update(nan, nan, torch.tensor(40), count)
    assert float(scores.compute()["accuracy"]) == pytest.approx(0.4)
    assert int(count) == 100
