"""The growing cache against a past kept as a Python list for every beam."""

import pytest
import torch

from seqattn.attention.cache import GrowingCache, KeysValues
from tests.builders import DIM, HEAD_DIM, HEADS, heads, make_attention

B, K, G = 2, 3, 4


def tokens(rows, steps, value=None, device="cpu"):
    if value is not None:
        return KeysValues(*(torch.full((rows, G, steps, HEAD_DIM), value) for _ in range(2)))
    return KeysValues(*(torch.randn(rows, G, steps, HEAD_DIM, device=device) for _ in range(2)))


def seen(past, sentence, beam):
    """The keys that a beam sees, in the order of their slots: (G, L, Dh)."""
    slots = past.slots.ancestry[sentence, beam].nonzero()[:, 0]
    held = past.slots.tokens.expand(len(past.keys), -1)[sentence, slots]
    assert torch.equal(held, torch.arange(len(slots)))
    return past.keys[sentence, :, slots], past.values[sentence, :, slots]


def test_one_beam_sees_all_that_was_written_in_order():
    cache = GrowingCache()
    written = [tokens(B, steps) for steps in (3, 1, 1, 2, 20, 1)]
    for new in written:
        past = cache.append(new)
    assert past.slots is None
    assert torch.equal(past.keys, torch.cat([new.keys for new in written], dim=2))
    assert torch.equal(past.values, torch.cat([new.values for new in written], dim=2))


@pytest.mark.parametrize("forgets", [True, False])
def test_every_beam_sees_its_own_ancestors_through_reordering_and_leaving(forgets):
    source = torch.Generator().manual_seed(5)
    cache = GrowingCache(K, forgets)
    histories = [[[] for _ in range(K)] for _ in range(4)]  # sentences, beams, tokens
    for step, steps in enumerate((2, 1, 1, 3, *[1] * 30, 2, 1, 1)):
        new = tokens(len(histories) * K, steps)
        past = cache.append(new)
        for b, sentence in enumerate(histories):
            for k, history in enumerate(sentence):
                history += [
                    (new.keys[b * K + k, :, t], new.values[b * K + k, :, t]) for t in range(steps)
                ]
                keys, values = seen(past, b, k)
                assert torch.equal(keys, torch.stack([pair[0] for pair in history], dim=1))
                assert torch.equal(values, torch.stack([pair[1] for pair in history], dim=1))
        index = torch.randint(K, (len(histories), K), generator=source)
        cache.reorder(index)
        histories = [
            [list(sentence[i]) for i in row] for sentence, row in zip(histories, index.tolist())
        ]
        if step in (1, 4):
            going = [2, 0, 3] if step == 1 else [1]
            cache.keep(torch.tensor(going))
            histories = [histories[b] for b in going]
    length = len(histories[0][0])
    assert past.keys.shape[2] < 2 * length if forgets else past.keys.shape[2] == K * length


@pytest.mark.parametrize(
    ("order", "slots"),
    [
        ([[1, 1, 1], [0, 2, 0]], 2 * 6),  # as many as one of the sentences needs
        ([[1, 1, 1], [0, 2, 1]], K * 6),
    ],
)
def test_a_full_buffer_loses_what_no_beam_descends_from(order, slots):
    cache = GrowingCache(K)
    for _ in range(6):
        past = cache.append(tokens(B * K, 1))
    assert cache._keys.shape[2] == past.keys.shape[2]
    own = past.keys[1, :, 0 : 3 * 6 : 3].clone()
    cache.reorder(torch.tensor(order))
    past = cache.append(tokens(B * K, 1))
    assert past.keys.shape[2] == slots + K
    assert cache.nbytes == 2 * 4 * B * G * HEAD_DIM * (slots + K)
    keys, _ = seen(past, 1, 0)
    assert torch.equal(keys[:, :6], own)


def test_reordering_moves_no_key():
    cache = GrowingCache(K)
    for _ in range(3):
        past = cache.append(tokens(B * K, 1))
    buffer, before = cache._keys, past.keys.clone()
    cache.reorder(torch.tensor([[2, 2, 0], [1, 0, 1]]))
    assert cache._keys is buffer
    assert torch.equal(past.keys, before)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_buffer_moves_seldom_and_has_little_spare_room(beams):
    cache, sizes = GrowingCache(beams), []
    for length in range(1, 401):
        cache.append(tokens(B * beams, 1))
        sizes.append(cache._keys.shape[2])
        used = length * beams
        assert used <= sizes[-1] <= used + max(used // 8, 4 * beams)
    assert len(set(sizes[:100])) <= 17
    assert len(set(sizes)) <= 29


@pytest.mark.parametrize("beams", [1, 3])
def test_it_moves_more_seldom_on_a_gpu(beams):
    cache, sizes = GrowingCache(beams), set()
    for _ in range(100):
        cache.append(tokens(B * beams, 1, device="meta"))
        sizes.add(cache._keys.shape[2])
    assert len(sizes) <= 7
    assert max(sizes) <= 2 * 100 * beams


def test_what_was_written_stays_as_it_was():
    cache = GrowingCache()
    for number in range(40):
        past = cache.append(tokens(B, 1, value=float(number)))
    expected = torch.arange(40.0)[None, None, :, None].expand(B, G, 40, HEAD_DIM)
    assert torch.equal(past.keys, expected)
    assert torch.equal(past.values, expected)


def test_bytes_count_what_is_in_use_and_not_the_spare_room():
    cache = GrowingCache(K)
    assert cache.nbytes == 0
    for length in range(1, 20):
        cache.append(tokens(B * K, 1))
        assert cache.nbytes == 2 * 4 * B * K * G * HEAD_DIM * length
    cache.keep(torch.tensor([1]))
    assert cache.nbytes == 2 * 4 * K * G * HEAD_DIM * 19


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_fewer_key_heads_make_the_cache_smaller_by_as_much(num_kv_heads):
    attention = make_attention(heads(HEADS, num_kv_heads))
    cache = attention.make_cache(beams=1)
    for _ in range(9):
        cache.append(attention.project(torch.randn(B, 1, DIM)))
    assert cache.nbytes == B * 9 * (2 * num_kv_heads * HEAD_DIM) * 4


def test_an_empty_cache_may_be_reordered_and_kept():
    cache = GrowingCache(K)
    cache.reorder(torch.zeros(B, K, dtype=torch.long))
    cache.keep(torch.tensor([1]))
    past = cache.append(tokens(K, 1))
    assert torch.equal(past.slots.ancestry, torch.eye(K, dtype=torch.bool)[None])
