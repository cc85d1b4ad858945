"""The mask value against loops over queries and keys."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from seqattn.attention.masks import Mask, padded_right, positions_of, real_first
from tests.builders import causal_mask, full_mask

REAL = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)


def loops(real, queries, causal, extra=None):
    """Allowed (B, T, S) by the definition: the last query stands at the last key."""
    sentences, keys = real.shape
    allowed = torch.zeros(sentences, queries, keys, dtype=torch.bool)
    for b in range(sentences):
        for t in range(queries):
            for s in range(keys):
                allowed[b, t, s] = real[b, s] and (not causal or s <= t + keys - queries)
    return allowed if extra is None else allowed & extra


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 2, 5])
def test_the_dense_form_allows_what_the_definition_allows(causal, queries):
    extra = torch.rand(3, 1, queries, 5) < 0.6
    keys = torch.arange(5)
    mask = Mask(keys[5 - queries :], keys, REAL, causal).with_extra(extra)
    expected = loops(REAL, queries, causal, extra[:, 0])
    assert torch.equal(mask.dense().expand(3, 1, queries, 5)[:, 0], expected)


def test_there_is_no_dense_form_where_everything_is_allowed():
    everywhere = torch.arange(5)
    assert Mask(everywhere, everywhere).dense() is None
    assert Mask(everywhere[4:], everywhere, causal=True).dense() is None


def test_positions_count_real_tokens_from_the_first_real_one():
    expected = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 3], [0, 1, 2, 3, 4]])
    assert torch.equal(positions_of(REAL), expected)


def test_positions_are_one_row_where_no_sentence_is_padded_on_the_left():
    assert torch.equal(positions_of(REAL[1:]), torch.arange(5))


def test_what_one_thread_knows_of_its_padding_is_nothing_to_another():
    with padded_right(), ThreadPoolExecutor(1) as other:
        assert torch.equal(positions_of(REAL), torch.arange(5))
        assert other.submit(positions_of, REAL).result().dim() == 2
        assert real_first(REAL) is None
        assert other.submit(real_first, REAL).result() is not None


def test_joined_masks_allow_what_both_allow_and_leave_the_first_as_it_was():
    first, second = (torch.rand(5, 5) < 0.6 for _ in range(2))
    mask = full_mask(REAL).with_extra(first)
    both = mask.with_extra(second)
    assert torch.equal(mask.extra, first)
    assert torch.equal(both.extra, first & second)
    assert mask.with_extra(None) is mask


def test_only_an_unpadded_square_triangle_is_plain_causal():
    all_real = Mask(torch.arange(5), torch.arange(5), causal=True)
    assert all_real.is_plain_causal
    assert not causal_mask(REAL).is_plain_causal
    assert not all_real.with_extra(torch.ones(5, 5, dtype=torch.bool)).is_plain_causal
    assert not Mask(torch.arange(3, 5), torch.arange(5), causal=True).is_plain_causal
    assert not Mask(torch.arange(5), torch.arange(5)).is_plain_causal
