"""The index sets of fixed attention, as Child et al. (2019) write them."""

import pytest

from seqattn.attention.kernels.base import HeadShape
from seqattn.attention.kernels.fixed import FixedKernel
from seqattn.errors import UserError
from tests.attention.test_strided import rows
from tests.builders import causal_mask, full_mask


def test_a_decoder_sees_its_block_and_the_summaries_of_those_before():
    assert rows(FixedKernel(HeadShape(2, 2, 3), stride=4, summary=2), 10, causal_mask) == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [2, 3, 4],
        [2, 3, 4, 5],
        [2, 3, 4, 5, 6],
        [2, 3, 4, 5, 6, 7],
        [2, 3, 6, 7, 8],
        [2, 3, 6, 7, 8, 9],
    ]


def test_an_encoder_sees_its_whole_block_and_the_summaries_of_all():
    assert rows(FixedKernel(HeadShape(2, 2, 3), stride=3, summary=1), 8, full_mask) == [
        *[[0, 1, 2, 5]] * 3,
        *[[2, 3, 4, 5]] * 3,
        *[[2, 5, 6, 7]] * 2,
    ]


def test_split_heads_take_turns_and_early_tokens_have_no_summary_yet():
    kernel = FixedKernel(HeadShape(2, 2, 3), stride=3, summary=1, split_heads=True)
    own = [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6]]
    assert rows(kernel, 7, causal_mask) == own
    assert rows(kernel, 7, causal_mask, head=1) == [[], [], [2], [2], [2], [2, 5], [2, 5]]


def test_strided_heads_take_turns_with_the_strided_pattern():
    kernel = FixedKernel(HeadShape(2, 2, 3), stride=2, summary=1, strided_heads=True)
    assert rows(kernel, 6, causal_mask) == [
        [0],
        [0, 1],
        [1, 2],
        [1, 2, 3],
        [1, 3, 4],
        [1, 3, 4, 5],
    ]
    assert rows(kernel, 6, causal_mask, head=1) == [
        [0],
        [0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [0, 2, 3, 4],
        [1, 3, 4, 5],
    ]


@pytest.mark.parametrize(
    ("heads", "options", "text"),
    [
        (
            2,
            {"stride": 4, "summary": 5},
            "summary must be at most stride (4), got 5",
        ),
        (
            3,
            {"strided_heads": True},
            "attention.num_heads must be even to alternate two patterns, got 3",
        ),
        (
            2,
            {"strided_heads": True, "split_heads": True},
            "split_heads and strided_heads are mutually exclusive",
        ),
    ],
)
def test_options_out_of_range_are_refused(heads, options, text):
    with pytest.raises(UserError) as caught:
        FixedKernel(HeadShape(heads, heads, 3), **options)
    assert str(caught.value) == text
