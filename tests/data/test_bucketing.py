import time
from dataclasses import replace

import numpy as np
import pytest

from seqattn.data.bucketing import BucketSampler, in_line
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.errors import UserError
from tests.nodes import made

LIMITS = BatchLimits(max_tokens=200)


def lengths(count=500, longest=40, seed=3):
    generator = np.random.default_rng(seed)
    source = np.clip(generator.gamma(6, 2, count).astype(int) + 2, 2, longest)
    target = np.clip(source + generator.integers(-4, 5, count), 2, longest)
    source[7] = longest
    return source, target


def sampler(limits=LIMITS, **options):
    return BucketSampler(*lengths(), limits, **options)


def test_every_row_comes_once_in_every_epoch():
    batches = sampler()

    for epoch in range(3):
        batches.set_epoch(epoch)
        assert sorted(row for batch in batches for row in batch) == list(range(500))


def test_rows_of_a_band_run_in_the_direction_opposite_to_its_neighbors():
    band, difference = np.array([1, 0, 2, 0, 1, 2]), np.array([5, -3, 2, 4, -6, 7])
    assert in_line(band, difference, None).tolist() == [3, 1, 4, 0, 5, 2]


@pytest.mark.parametrize(
    "limits",
    [LIMITS, BatchLimits(200, max_rows=7), BatchLimits(200, max_square=2500), BatchLimits(40)],
)
def test_no_batch_exceeds_the_limits(limits):
    source, target = lengths()

    for batch in sampler(limits):
        longest = max(source[batch].max(), target[batch].max())
        assert len(batch) * longest <= limits.max_tokens
        assert len(batch) <= (limits.max_rows or 500)
        assert len(batch) * longest**2 <= (limits.max_square or 10**9)


def test_batches_are_nearly_full_and_little_of_them_is_padding():
    source, target = lengths(count=20_000)
    batches = list(BucketSampler(source, target, BatchLimits(max_tokens=2000)))

    shapes = [(len(b), source[b].max(), target[b].max()) for b in batches]
    assert np.mean([rows * max(s, t) for rows, s, t in shapes]) > 0.95 * 2000
    positions = sum(rows * (s + t) for rows, s, t in shapes)
    assert 1 - (source.sum() + target.sum()) / positions < 0.06


def test_epochs_differ_in_order_and_in_company_but_not_in_number():
    batches = sampler()
    epochs = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        epochs.append([tuple(sorted(batch)) for batch in batches])
        assert len(epochs[-1]) == len(batches)

    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len(set(epochs[1]) & set(epochs[2])) < len(batches) / 2
    sizes = [sorted(map(len, epoch)) for epoch in epochs]
    assert sizes[0] == sizes[1] == sizes[2]


def test_the_order_depends_on_seed_and_epoch_alone():
    late, fresh, other = sampler(seed=5), sampler(seed=5), sampler(seed=6)
    for epoch in (0, 1, 2):
        late.set_epoch(epoch)
        list(late)
    fresh.set_epoch(2)
    other.set_epoch(2)

    assert list(late) == list(fresh) == list(late)
    assert list(fresh) != list(other)


def test_the_longest_batch_comes_first_in_the_first_epoch_only():
    source, target = lengths()
    batches = sampler()

    def longest(batch):
        return max(source[batch].max(), target[batch].max())

    first = list(batches)
    assert longest(first[0]) == max(map(longest, first)) == 40
    assert len(first[0]) == 200 // 40
    # Elsewhere it is where chance puts it.
    firsts = []
    for epoch in range(1, 6):
        batches.set_epoch(epoch)
        firsts.append(longest(next(iter(batches))))
    assert min(firsts) < 40


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_share_out_all_rows_in_equally_many_batches(world):
    ranks = [sampler(rank=rank, world=world) for rank in range(world)]

    for epoch in range(2):
        shares = []
        for rank in ranks:
            rank.set_epoch(epoch)
            shares.append(list(rank))
        assert {len(share) for share in shares} == {len(ranks[0])}
        rows = [row for share in shares for batch in share for row in batch]
        assert sorted(rows) == list(range(500))


def test_each_rank_tries_one_of_the_longest_batches_first():
    source, target = lengths()
    whole = sampler(world=1)
    in_length_order = sorted((max(source[b].max(), target[b].max()) for b in whole), reverse=True)
    firsts = [next(iter(sampler(rank=rank, world=2))) for rank in range(2)]

    got = [max(source[batch].max(), target[batch].max()) for batch in firsts]
    assert got == in_length_order[:2]


def test_fewer_batches_than_ranks_are_halved_until_each_has_one():
    ranks = [
        BucketSampler(np.full(6, 4), np.full(6, 4), BatchLimits(100), rank=r, world=5)
        for r in range(5)
    ]

    assert [len(rank) for rank in ranks] == [1] * 5
    assert sorted(row for rank in ranks for batch in rank for row in batch) == list(range(6))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_step_has_the_same_batches_on_any_number_of_ranks(world):
    alone = sampler(step_batches=4)
    ranks = [sampler(rank=rank, world=world, step_batches=4) for rank in range(world)]

    for epoch in (0, 1):
        for one in (alone, *ranks):
            one.set_epoch(epoch)
        whole, shares = list(alone), [list(rank) for rank in ranks]
        assert len(whole) % 4 == 0
        in_turn = [batch for batches in zip(*shares, strict=True) for batch in batches]
        assert in_turn == whole
    assert len({one.plan for one in (alone, *ranks)}) == 1


def test_fullest_batches_are_halved_up_to_a_number():
    plain, more = sampler(), sampler(least=len(sampler()) + 5, step_batches=2)
    assert len(more) == 2 * -(-(len(plain) + 5) // 2)
    assert max(map(len, more)) <= max(map(len, plain))
    assert sorted(row for batch in more for row in batch) == [*range(500)]
    assert [*sampler(least=3)] == [*plain]


def test_batches_of_one_row_that_do_not_fill_a_step_wait_for_another_epoch():
    limits = BatchLimits(100, max_rows=1)
    ranks = [
        BucketSampler(np.full(5, 4), np.full(5, 4), limits, rank=rank, world=2) for rank in (0, 1)
    ]
    seen = []
    for epoch in range(8):
        for rank in ranks:
            rank.set_epoch(epoch)
        shares = [list(rank) for rank in ranks]
        assert [len(share) for share in shares] == [len(rank) for rank in ranks] == [2, 2]
        rows = sorted(row for share in shares for [row] in share)
        assert len(set(rows)) == 4
        seen += rows
    assert set(seen) == set(range(5))


def test_without_shuffling_no_row_waits():
    limits = BatchLimits(100, max_rows=1)
    ranks = [
        BucketSampler(np.full(5, 4), np.full(5, 4), limits, rank=rank, world=2, shuffle=False)
        for rank in (0, 1)
    ]
    assert [len(list(rank)) for rank in ranks] == [len(rank) for rank in ranks] == [3, 2]
    assert ranks[0].on_every_rank == 2


def test_ranks_that_do_not_divide_a_step_are_refused():
    with pytest.raises(UserError, match=r"must be a multiple of the number of ranks \(2\)"):
        sampler(world=2, step_batches=3)


def test_an_epoch_goes_on_in_its_midst_and_the_next_begins_at_its_start():
    batches = sampler()
    batches.set_epoch(2)
    whole = list(batches)
    batches.start_batch = 10

    assert len(batches) == len(whole)
    assert list(batches) == whole[10:]
    assert list(batches) == whole
    batches.start_batch = 10
    batches.set_epoch(2)
    assert batches.start_batch == 10
    batches.set_epoch(3)
    assert len(list(batches)) == len(whole)


def test_without_shuffling_every_epoch_is_the_same():
    batches = sampler(shuffle=False)
    first = list(batches)
    batches.set_epoch(4)

    assert list(batches) == first


def test_a_large_epoch_is_planned_quickly():
    source, target = lengths(count=29_000)
    start = time.perf_counter()
    batches = BucketSampler(source, target, BatchLimits(max_tokens=4096))
    list(batches)

    assert time.perf_counter() - start < 0.5


def test_long_documents_still_change_company():
    generator = np.random.default_rng(1)
    source, target = generator.integers(200, 1000, 400), generator.integers(5, 40, 400)
    batches = BucketSampler(source, target, BatchLimits(max_tokens=4096))
    first = {tuple(sorted(batch)) for batch in batches}
    batches.set_epoch(1)

    assert len(first & {tuple(sorted(batch)) for batch in batches}) < len(first) / 2


def test_what_cannot_be_batched_is_refused():
    with pytest.raises(
        UserError,
        match=r"loader.max_tokens must be at least 40 for the longest row \(40 tokens\), got 39",
    ):
        BucketSampler(*lengths(), BatchLimits(39))
    with pytest.raises(
        UserError, match=r"loader.max_square must be at least 1,600 for the longest row \(40 tok"
    ):
        BucketSampler(*lengths(), BatchLimits(90, max_square=1500))
    with pytest.raises(
        UserError, match=r"a step of 3 batches needs at least one row per batch, got 2"
    ):
        BucketSampler(np.array([3, 4]), np.array([3, 4]), LIMITS, world=3)
    with pytest.raises(UserError, match="max_rows must be a whole number from 1 to"):
        made(BatchLimits, max_rows=0)


def test_sizes_of_rounded_lengths_come_back():
    sizes, source, target = {}, *lengths(2_000)
    for multiple in (1, 8):
        limits = LoaderOptions(max_tokens=2_000, round_to=multiple)
        sampler = BucketSampler(source, target, limits)
        batches = [np.array(batch) for batch in sampler]
        assert sorted(np.concatenate(batches)) == list(range(len(source)))
        found = [
            (len(rows), *(int(limits.rounded(side[rows].max())) for side in (source, target)))
            for rows in batches
        ]
        assert all(count * max(sides) <= 2_000 for count, *sides in found)
        sizes[multiple] = len(set(found)) / len(found)
        plan = sampler.plan
        assert plan == BucketSampler(source, target, replace(limits, max_rows=10**6)).plan
        assert plan != BucketSampler(source, target, replace(limits, round_to=3)).plan
    assert sizes[8] < sizes[1] / 2
