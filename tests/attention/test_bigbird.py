"""BigBird's blocks: which they are, and that the seed and the real length alone decide them."""

import torch

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.bigbird import BigBirdKernel
from tests.attention.test_strided import rows
from tests.builders import full_mask


def blocks_of(kernel, length):
    """The key blocks of each query block."""
    seen = rows(kernel, length, full_mask)
    size = kernel.block_size
    found = []
    for start in range(0, length, size):
        (blocks,) = {tuple(sorted({j // size for j in row})) for row in seen[start : start + size]}
        whole = [j for j in range(length) if j // size in blocks]
        assert all(row == whole for row in seen[start : start + size])
        found.append(set(blocks))
    return found


def made(**options):
    return BigBirdKernel(HeadShape(2, 2, 3), **{"block_size": 2, **options})


def test_each_block_sees_its_window_and_the_globals_which_see_all():
    assert blocks_of(made(random_blocks=0), 13) == [
        {0, 1, 2, 3, 4, 5, 6},
        {0, 1, 2},
        {0, 1, 2, 3},
        {0, 2, 3, 4},
        {0, 3, 4, 5},
        {0, 4, 5, 6},
        {0, 5, 6},
    ]


def test_an_even_window_has_one_block_more_before():
    found = blocks_of(made(window_blocks=2, global_blocks=0, random_blocks=0), 7)
    assert found == [{0}, {0, 1}, {1, 2}, {2, 3}]


def test_a_window_wider_than_the_sentence_sees_all_of_it_and_takes_no_more_room():
    wide, lengths = made(window_blocks=10**9), torch.tensor([7, 4])
    assert blocks_of(wide, 7) == [{0, 1, 2, 3}] * 4
    assert wide.table(lengths, 4).shape[2] == made(window_blocks=8).table(lengths, 4).shape[2]


def test_random_blocks_are_as_many_as_asked_and_none_that_is_seen_anyway():
    certain = blocks_of(made(random_blocks=0, global_blocks=2), 39)
    drawn = blocks_of(made(random_blocks=3, global_blocks=2), 39)
    for block, (sure, all_of_it) in enumerate(zip(certain, drawn)):
        assert sure <= all_of_it
        assert len(all_of_it - sure) == (0 if block < 2 else 3)


def test_a_short_sentence_has_fewer_random_blocks():
    assert blocks_of(made(random_blocks=3), 9) == [{0, 1, 2, 3, 4}] * 5


def test_the_same_seed_gives_the_same_pattern_and_another_seed_another():
    assert blocks_of(made(seed=3), 40) == blocks_of(made(seed=3), 40)
    assert blocks_of(made(seed=3), 40) != blocks_of(made(seed=4), 40)


def test_the_draw_favors_no_block():
    counts = torch.zeros(16)
    for seed in range(400):
        row = made(random_blocks=2, seed=seed).table(torch.tensor([32]), 16)[0, 8]
        counts[row[4:]] += 1
    free = [*range(1, 7), *range(10, 16)]
    assert counts.sum() == counts[free].sum() == 800
    assert (counts[free] > 35).all()  # 67 expected each, deviation 8
    assert (counts[free] < 100).all()


def test_the_pattern_depends_on_each_sentence_s_own_length_and_on_no_padding():
    kernel = made(random_blocks=1, seed=2)
    lengths = torch.tensor([21, 14, 9])
    table = kernel.table(lengths, 11)
    for row, own in zip(table, lengths.tolist()):
        count = -(-own // 2)
        alone = kernel.table(torch.tensor([own]), count)[0]
        ours = row[:count].masked_fill(row[:count] >= count, count)
        assert torch.equal(ours, alone)
