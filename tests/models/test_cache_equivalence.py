"""Decoding through the cache against full passes over the whole target, for every choice."""

import pytest
import torch

from seqattn.tokens import BOS, PAD
from tests.builders import padded, random_ids, targets
from tests.models.families import families, make
from tests.tolerance import close

SOURCES = padded([[4, 5, 6, 7, 8, 9, 3], [9, 4, 3], [6, 6, 7, 10, 3]])
B, T, K = 3, 6, 3


MODELS = families("decoder")
PLAIN = [model for model in MODELS if model.id == "mha-none"]


@pytest.fixture(params=MODELS)
def model(request):
    return make(request.param)


@pytest.fixture(params=PLAIN)
def transformer(request):
    return make(request.param)


def last_logits(model, sources, histories):
    """What follows each history, by one full uncached pass of it and its like; no padding."""
    rows = [None] * len(histories)
    likes = {}
    for row, (source, history) in enumerate(zip(sources.tolist(), histories)):
        likes.setdefault((tuple(source), len(history)), []).append(row)
    for (source, _), alike in likes.items():
        ids = torch.tensor([[token for token in source if token != PAD]] * len(alike))
        found = model(ids, torch.tensor([histories[row] for row in alike]))[:, -1]
        for row, logits in zip(alike, found):
            rows[row] = logits
    return torch.stack(rows)


@torch.inference_mode()
def test_tokens_in_pieces_give_the_logits_of_one_full_pass(model):
    ids = targets(B, T)
    expected = model(SOURCES, ids)
    for cuts in ((1, 1, 1, 1, 1, 1), (6,), (3, 1, 2), (1, 4, 1)):
        state = model.start(model.encode(SOURCES))
        pieces = [model.decode(piece, state) for piece in ids.split(cuts, dim=1)]
        close(torch.cat(pieces, dim=1), expected, 5e-5)


@torch.inference_mode()
def test_ragged_prefixes_padded_on_either_side_go_on_as_each_would_alone(model):
    for left in (True, False):
        assert_ragged_prefixes_go_on(model, left)


def assert_ragged_prefixes_go_on(model, left):
    histories = [[BOS], [BOS, 5, 6, 7], [BOS, 8, 9]]
    prefix = padded(histories, left)
    state = model.start(model.encode(SOURCES))
    logits = model.decode(prefix, state)
    ends = [-1] * B if left else [len(history) - 1 for history in histories]
    logits = logits[torch.arange(B), ends]
    for step, new in enumerate(random_ids(5, B)):
        close(logits, last_logits(model, SOURCES, histories), 5e-5)
        if step == 2:  # finished rows leave
            state.keep(torch.tensor([2, 0]))
            histories, new = [histories[2], histories[0]], new[[2, 0]]
            sources = SOURCES[[2, 0]]
            logits = model.decode(new[:, None], state)[:, -1]
            histories = [[*h, t] for h, t in zip(histories, new.tolist())]
            close(logits, last_logits(model, sources, histories), 5e-5)
            break
        histories = [[*h, t] for h, t in zip(histories, new.tolist())]
        logits = model.decode(new[:, None], state)[:, -1]


@torch.inference_mode()
def test_beams_that_are_reordered_and_sentences_that_leave_equal_full_passes(model):
    for prefixed in (False, True):
        assert_beams_go_on(model, prefixed)


def assert_beams_go_on(model, prefixed):
    prefixes = [[BOS, 5], [BOS], [BOS, 7, 8]] if prefixed else [[BOS]] * B
    first = padded(prefixes, left=True).repeat_interleave(K, dim=0)
    histories = [list(prefix) for prefix in prefixes for _ in range(K)]
    sources, sentences = SOURCES, B
    state = model.start(model.encode(SOURCES), beams=K)
    logits = model.decode(first, state)[:, -1]
    draw = torch.Generator().manual_seed(7)
    for step, steps in enumerate((1, 1, 2, 1, 1)):
        repeated = sources.repeat_interleave(K, dim=0)
        close(logits, last_logits(model, repeated, histories), 5e-5)
        index = torch.randint(K, (sentences, K), generator=draw)
        state.reorder(index)
        flat = (index + K * torch.arange(sentences)[:, None]).flatten().tolist()
        histories = [list(histories[row]) for row in flat]
        if step in (1, 3):
            going = torch.tensor([2, 1] if step == 1 else [1])
            state.keep(going)
            sources, sentences = sources[going], len(going)
            histories = [histories[b * K + k] for b in going.tolist() for k in range(K)]
        new = torch.randint(4, 11, (sentences * K, steps), generator=draw)
        histories = [history + row for history, row in zip(histories, new.tolist())]
        logits = model.decode(new, state)[:, -1]


@torch.inference_mode()
def test_one_copy_of_the_source_serves_every_beam(transformer):
    state = transformer.start(transformer.encode(SOURCES), beams=5)
    transformer.decode(torch.full((5 * B, 1), BOS), state)
    for pair in state.source:
        for part in pair:
            assert part.shape[0] == B
            assert part.shape[2] == SOURCES.shape[1]
    assert state.source_mask.real.shape == SOURCES.shape


@torch.inference_mode()
def test_without_a_cache_nothing_is_kept_and_the_logits_are_the_same(transformer):
    ids = targets(B, T)
    cached = transformer.start(transformer.encode(SOURCES))
    uncached = transformer.start(transformer.encode(SOURCES), cached=False)
    expected = transformer.decode(ids, cached)
    close(transformer.decode(ids, uncached), expected, 5e-5)
    assert uncached.caches is None
    assert uncached.nbytes == 0
    assert cached.nbytes > 0
    with pytest.raises(AssertionError):
        transformer.decode(ids[:, :1], uncached)
