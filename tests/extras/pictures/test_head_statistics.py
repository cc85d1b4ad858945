"""How broad heads look and where their weight rests, against what is known by hand."""

import math

import pytest
import torch

from seqattn.extras.pictures.head_statistics import (
    Call,
    HeadStatistics,
    distributions,
    mass_on,
    relative_entropy,
    sink_mass,
)

B, H, T, S = 2, 3, 4, 5


def random_weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).softmax(dim=-1)


def test_entropy_is_0_on_one_key_and_1_where_all_visible_keys_are_alike():
    visible = torch.arange(S) < torch.tensor([S, 3])[:, None]  # (B, S)
    visible = visible[:, None, None]
    alike = (visible / visible.sum(dim=-1, keepdim=True)).expand(B, H, T, S)
    torch.testing.assert_close(relative_entropy(alike, visible), torch.ones(B, H, T))
    one = torch.zeros(B, H, T, S)
    one[..., 1] = 1.0
    assert torch.equal(relative_entropy(one, visible), torch.zeros(B, H, T))


def test_entropy_equals_the_sum_by_hand_whatever_a_row_sums_to():
    weights = random_weights(B, H, T, S)
    row = weights[1, 2, 3].tolist()
    by_hand = -sum(w * math.log(w) for w in row) / math.log(S)
    assert relative_entropy(3 * weights)[1, 2, 3].item() == pytest.approx(by_hand, rel=1e-6)


def test_a_query_with_fewer_than_two_keys_has_no_entropy():
    causal = torch.ones(T, T).tril().bool()
    weights = distributions(random_weights(B, H, T, T) * causal)
    found = relative_entropy(weights, causal)
    assert found.isnan()[..., 0].all()
    assert not found.isnan()[..., 1:].any()


def test_mass_and_sink_are_shares_of_a_querys_weight():
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6]]).view(1, 1, 3, 3)
    ends = torch.tensor([[False, False, True]])
    assert mass_on(2 * weights, ends)[0, 0].tolist() == pytest.approx([0.25, 0.5, 0.6])
    counted = torch.tensor([[[True, True, False]]])
    # columns of the first two rows: 0.5, 0.75, 0.75
    assert sink_mass(2 * weights, counted)[0, 0].item() == pytest.approx(0.375)


def test_statistics_do_not_depend_on_padding_or_on_how_calls_are_cut():
    ends = torch.zeros(B, S, dtype=torch.bool)
    ends[:, -1] = True
    real = torch.ones(B, T, dtype=torch.bool)
    weights = random_weights(B, H, T, S)
    whole = Call(weights, None, real, ends)
    rows = [Call(weights[row, None], None, real[row, None], ends[row, None]) for row in range(B)]
    wide = torch.cat([weights, torch.zeros(B, H, T, 2)], dim=3)
    wide = torch.cat([wide, torch.full((B, H, 1, S + 2), torch.nan)], dim=2)
    more = torch.nn.functional.pad
    visible = more(torch.ones(B, 1, 1, S, dtype=torch.bool), (0, 2))
    padded = Call(wide, visible, more(real, (0, 1)), more(ends, (0, 2)))
    for other in (rows, [padded]):
        for mine, theirs in zip(HeadStatistics.of([whole]), HeadStatistics.of(other)):
            torch.testing.assert_close(mine, theirs)


def test_dead_and_uniform_heads_are_told_from_one_that_looks_about():
    weights = torch.zeros(B, 3, T, S)
    weights[0, 0, :, 1] = weights[1, 0, :, 4] = 1.0  # one key for each sentence
    weights[:, 1] = 1 / S
    weights[:, 2] = torch.eye(T, S)
    call = Call(weights, None, torch.ones(B, T).bool(), torch.zeros(B, S).bool())
    found = HeadStatistics.of([call])
    assert found.dead.tolist() == [True, False, False]
    assert found.uniform.tolist() == [False, True, False]
    assert found.end.isnan().all()  # no sentence has an end mark among its keys
