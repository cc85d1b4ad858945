"""Sources that are too long are left out, cut short, or read in windows."""

import numpy as np
import pytest

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.source_ids import pieces_of
from seqattn.data.sources import ParallelText
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.tokens import EOS
from tests.data.source_helpers import write_text
from tests.nodes import made


def rule(how, maximum, stride=None):
    return LoaderOptions(long_sources=how, max_source_length=maximum, window_stride=stride)


def test_a_source_that_fits_stays_as_it_is():
    for how in ("drop", "truncate", "window"):
        assert pieces_of([7, 8, 9, EOS], rule(how, 4)) == [[7, 8, 9, EOS]]


@pytest.mark.parametrize("maximum", range(2, 7))
def test_a_head_begins_each_window_and_leaves_room_for_more(maximum):
    ids, options = [8, 9, 8, *range(10, 20), EOS], rule("window", maximum)
    found, head = pieces_of(ids, options, 3), min(3, options.longest_head)
    assert all(piece[:head] == ids[:head] and piece[-1] == EOS for piece in found)
    assert {token for piece in found for token in piece[head:]} == set(ids[head:])


def test_a_long_source_is_left_out_cut_or_read_in_windows():
    ids = [*range(10, 20), EOS]

    assert pieces_of(ids, rule("drop", 5)) == []
    assert pieces_of(ids, rule("truncate", 5)) == [[10, 11, 12, 13, EOS]]
    assert pieces_of(ids, rule("window", 5, stride=3)) == [
        [10, 11, 12, 13, EOS],
        [13, 14, 15, 16, EOS],
        [16, 17, 18, 19, EOS],
    ]
    assert pieces_of(ids, rule("window", 8)) == [
        [10, 11, 12, 13, 14, 15, 16, EOS],
        [13, 14, 15, 16, 17, 18, 19, EOS],
    ]


@pytest.mark.parametrize("maximum", range(2, 9))
def test_windows_are_full_overlap_and_leave_nothing_out(maximum):
    for stride in (None, *range(1, maximum)):
        for length in range(maximum + 1, 30):
            ids = [*range(100, 100 + length - 1), EOS]
            found = pieces_of(ids, rule("window", maximum, stride))
            assert {len(piece) for piece in found} == {maximum}
            assert all(piece[-1] == EOS for piece in found)
            assert {token for piece in found for token in piece} == set(ids)
            firsts = [piece[0] for piece in found]
            assert (firsts[0], found[-1][-2]) == (100, ids[-2])
            steps = np.diff(firsts)
            assert (steps[:-1] == (stride or max(1, (maximum - 1) // 2))).all()
            assert (steps > 0).all()
            assert (steps <= (stride or maximum)).all()


@pytest.mark.parametrize("how", ["drop", "truncate", "window"])
def test_many_sources_are_cut_like_each(how):
    options = rule(how, 4, 2 if how == "window" else None)
    lengths = np.array([2, 9, 4, 5, 3, 12])
    rows, starts = options.pieces(lengths, np.zeros(6, int))
    found = []
    for row, start in zip(rows, starts, strict=True):
        ids = [*range(100 * row, 100 * row + lengths[row] - 1)]
        found.append([*ids[start : start + 3], EOS])
    each = [
        pieces_of([*range(100 * n, 100 * n + size - 1), EOS], options)
        for n, size in enumerate(lengths)
    ]
    assert found == [piece for some in each for piece in some]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(5)
    for split, count in (("train", 40), ("val", 9)):
        lines = [
            "".join(generator.choice(list("abc"), generator.integers(1, 30))) for _ in range(count)
        ]
        lines[3] = ""
        write_text(folder, split, [(line, line[: n % 9 + 1]) for n, line in enumerate(lines)])
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def build(corpus, cache, **changes):
    options = LoaderOptions(**{"max_tokens": 60, "max_length": 9, **changes})
    source = ParallelText(str(corpus), "en", "de")
    return Seq2SeqData(source, TokenizerConfig("bpe", 8), options, str(cache), seed=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"long_sources": "truncate"},
        {"long_sources": "truncate", "max_source_length": 14},
        {"long_sources": "window"},
        {"long_sources": "window", "max_source_length": 6, "window_stride": 4},
        {"max_source_length": 15},
        {"max_source_length": 7},
    ],
)
def test_batches_hold_just_what_cut_gives_with_the_whole_target(corpus, cache, changes):
    data = build(corpus, cache, **changes)
    found = []
    for [batch] in data.loader("train"):
        assert max(batch.source.shape[1], batch.target_output.shape[1]) * len(batch.index) <= 60
        rows = zip(batch.index.tolist(), batch.source.tolist(), batch.target_output.tolist())
        for row, source, target in rows:
            found.append((row, [t for t in source if t], [t for t in target if t]))
    texts = data.rows("train")
    sources = data.tokenizer.encode_source(texts.sources)
    encoded = zip(sources, data.tokenizer.encode_target(texts.targets))
    expected = []
    for row, (source, target) in enumerate(encoded):
        if min(len(source), len(target)) > 1 and len(target) <= 9:
            expected += [(row, piece, target) for piece in pieces_of(source, data.options)]
    assert sorted(found) == sorted(expected)
    assert len(expected) >= 5
    assert data.longest[0] <= data.options.source_length


def test_the_report_says_what_was_cut(corpus, cache):
    texts = build(corpus, cache).rows("train")
    sources, targets = texts.sources, texts.targets
    # a letter is a token; a mark for the word's beginning and the end mark come with them
    short = [0 < len(target) <= 7 for target in targets]
    cut_ones = sum(keep and len(s) > 6 for s, keep in zip(sources, short, strict=True))

    def told(**changes):
        data = build(corpus, cache, **changes)
        data.load()
        return data.notices()[0].partition("; read from ")[0]

    dropped = f"dropped {40 - sum(short)} of 40 train pairs: {39 - sum(short)}"
    assert 0 < cut_ones < sum(short) < 39
    assert told(long_sources="truncate", max_source_length=8) == (
        f"{dropped} with a target longer than 9 tokens, 1 with an empty side; "
        f"truncated {cut_ones} sources ({100 * cut_ones / 40:.1f}%) to 8 tokens"
    )
    windows = build(corpus, cache, long_sources="window", max_source_length=4, window_stride=3)
    windows.load()
    encoded = windows.tokenizer.encode_source(sources)
    each = [pieces_of(ids, windows.options) for ids, keep in zip(encoded, short) if keep]
    several = [found for found in each if len(found) > 1]
    assert (
        windows.notices()[0]
        .partition("; read from ")[0]
        .endswith(
            f"; split {len(several)} sources ({100 * len(several) / 40:.1f}%) "
            f"into {sum(map(len, several))} windows of 4 tokens"
        )
    )
    assert " with a source over 8 or a target over 9 tokens, " in told(max_source_length=8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"long_sources": "window", "max_source_length": 9, "window_stride": 9},
            "loader.window_stride must be from 1 to 8 (max_source_length without EOS) so that "
            "windows cover every token, got 9",
        ),
        (
            {"max_tokens": 10, "max_length": 20},
            "loader.max_tokens must be at least 20 for a row of max_length (20) tokens, got 10",
        ),
        (
            {"window_stride": 3},
            "loader.window_stride requires loader.long_sources=window, got drop",
        ),
        (
            {"max_source_length": 5000},
            "loader.max_tokens must be at least 5,000 for a row of max_source_length (5000) "
            "tokens, got 4096",
        ),
    ],
)
def test_rules_out_of_range_are_refused(changes, message):
    with pytest.raises(UserError) as caught:
        made(LoaderOptions, **changes)
    assert str(caught.value) == message
