"""A corpus in shards is trained on as one in memory, in windows of constant size."""

import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqattn.data.bucketing import BucketSampler, batch_count
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.shards.shard_windows import ShardedCorpus, _rounded
from seqattn.extras.shards.source import Shards
from seqattn.tokens import EOS
from tests.extras.shards.small_shards import CONFIG, PAIRS, prepare


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Nine shards of about seventy pairs, in three windows."""
    return prepare(tmp_path_factory.mktemp("shards")).path


def data_of(home, window=3, weights=None, temperature=1.0, seed=4, **changes):
    options = LoaderOptions(**{"max_tokens": 120, "max_length": 60, **changes})
    roots = [str(one) for one in home] if isinstance(home, list) else str(home)
    source = Shards(roots, weights, temperature, window)
    return Seq2SeqData(source, CONFIG, options, str(seed_folder(home)), seed)


def read_all(data):
    data.load()
    return list(data.loader("train"))


def seed_folder(home):
    first = home[0] if isinstance(home, list) else home
    return first.parent / "cache"


def texts(data, batch):
    """The pairs of a batch, decoded."""
    decode = data.tokenizer.decode_target
    return list(zip(decode(batch.source.tolist()), decode(batch.target_output.tolist())))


def epoch(loader, number):
    loader.set_epoch(number)
    return [batch for [batch] in loader]


def numbers(batches):
    """The rows of batches, or of those of steps."""
    batches = [item[0] if isinstance(item, list) else item for item in batches]
    return [batch.index.tolist() for batch in batches]


def test_every_pair_comes_once_in_every_epoch_with_its_own_target(home):
    data = data_of(home)
    loader = data.loader("train")
    for number in range(2):
        found = [pair for batch in epoch(loader, number) for pair in texts(data, batch)]
        assert sorted(found) == sorted(PAIRS)


def test_epochs_have_as_many_batches_in_another_order_and_company(home):
    loader = data_of(home).loader("train")
    first, second = (numbers(epoch(loader, number)) for number in range(2))
    assert len(first) == len(second) == len(loader)
    assert len({tuple(sorted(b)) for b in first} & {tuple(sorted(b)) for b in second}) < 5
    assert numbers(epoch(data_of(home).loader("train"), 1)) == second
    assert numbers(epoch(data_of(home, seed=5).loader("train"), 1)) != second


def test_the_batches_are_those_that_a_bucket_sampler_makes_of_each_window(home):
    """The same budgets, limits and buckets as in memory: windows are planned by the same code."""
    data = data_of(home, max_rows=7, round_to=4)
    loader, sizes = data.loader("train"), []
    corpus = loader.data._corpora[0]
    assert corpus.windows == 3
    for window in range(3):
        _, source, target = corpus.read(window)
        sizes += BucketSampler(source, target, data.options).sizes.tolist()
    assert sorted(map(len, numbers(loader))) == sorted(sizes)
    for [batch] in loader:
        lengths = batch.source.shape[1], batch.target_output.shape[1]
        assert max(lengths) * len(batch.source) <= 120
        assert not any(length % 4 for length in lengths)


def test_rows_of_a_window_stay_together_and_windows_change_their_order(home):
    loader = data_of(home).loader("train")
    bounds = [loader.data._corpora[0].firsts[n] for n in (0, 3, 6, 9)]
    orders = set()
    for number in range(6):
        windows = [
            np.searchsorted(bounds, rows, "right") - 1 for rows in numbers(epoch(loader, number))
        ]
        assert all(len(set(found.tolist())) == 1 for found in windows)
        order = [key for key, _ in itertools.groupby(found[0] for found in windows)]
        assert sorted(order) == [0, 1, 2]
        orders.add(tuple(order))
    assert len(orders) > 2


@pytest.mark.parametrize("step_batches", [1, 4, 6])
def test_batches_are_counted_from_lengths_alone(step_batches):
    chance = np.random.default_rng(0)
    source, target = chance.integers(2, 40, (2, 700))
    limits = BatchLimits(max_tokens=150, max_rows=9)
    sampler = BucketSampler(source, target, limits, step_batches=step_batches)
    (one, other), rows = np.unique(np.stack([source, target]), axis=1, return_counts=True)
    assert batch_count(one, other, rows, limits, step_batches) == len(sampler.sizes)


def sampler_of(home, **order):
    data = data_of(home)
    data.load()
    return data._splits["train"].sampler(data.options, seed=4, **order)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_the_batches_of_one_order_step_by_step(home, world):
    alone = sampler_of(home, step_batches=4)
    ranks = [sampler_of(home, step_batches=4, rank=r, world=world) for r in range(world)]
    assert len(alone) % 4 == 0
    for sampler in (alone, *ranks):
        sampler.set_epoch(1)
    together = itertools.chain.from_iterable(zip(*ranks, strict=True))
    assert list(together) == list(alone)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("start", [0, 1, 17, 40])
def test_an_epoch_goes_on_in_its_midst_without_what_was_before(home, start, world):
    whole, part = (sampler_of(home, step_batches=2, rank=world - 1, world=world) for _ in range(2))
    whole.set_epoch(2)
    part.set_epoch(2)
    part.start_batch = start
    assert list(part) == list(whole)[start:]
    assert len(list(part)) == len(whole)  # the next is whole again


def test_going_on_reads_no_window_that_was_seen(home, monkeypatch):
    sampler, read = sampler_of(home), []
    monkeypatch.setattr(
        ShardedCorpus, "read", lambda self, window, original=ShardedCorpus.read: (
            read.append(window), original(self, window))[1],
    )  # fmt: skip
    sampler.start_batch = len(sampler) - 2
    assert len(list(sampler)) == 2
    assert len(read) == 1


def test_a_loader_begins_at_any_step_of_the_same_batches(home):
    whole = data_of(home).loader("train")
    batches = iter(whole)
    for _ in range(21):
        next(batches)
    other = data_of(home).loader("train")
    state = whole.state_dict()
    other.load_state_dict(state)
    assert numbers(other) == numbers(batches)
    with pytest.raises(UserError, match="cannot resume after step"):
        data_of(home, max_tokens=121).loader("train").load_state_dict(state)


def test_workers_change_nothing(home):
    alone, beside = (data_of(home, num_workers=n).loader("train") for n in (0, 2))
    for [one], [other] in zip(alone, beside, strict=True):
        assert torch.equal(one.source, other.source)
        assert torch.equal(one.target_input, other.target_input)
        assert torch.equal(one.index, other.index)


def test_long_pairs_are_left_out_and_told(home):
    data = data_of(home, max_length=12)
    data.load()
    encode = data.tokenizer
    longer = sum(
        max(len(encode.encode_source([a])[0]), len(encode.encode_target([b])[0])) > 12
        for a, b in PAIRS
    )
    assert 0 < longer < len(PAIRS)
    told = f"dropped {longer} of {len(PAIRS)} train pairs: longer than 12 tokens"
    assert data.notices()[0].startswith(told)
    loader = data.loader("train")
    assert sum(map(len, numbers(loader))) == len(PAIRS) - longer
    assert data.longest[0] <= 12


def test_long_sources_are_cut_to_their_first_tokens(home):
    data = data_of(home, long_sources="truncate", max_source_length=8)
    data.load()
    assert " sources to 8 tokens" in data.notices()[0]
    full = {}
    for [batch] in data.loader("train"):
        assert batch.source.shape[1] <= 8
        full |= dict(zip(batch.index.tolist(), batch.source.tolist()))
    whole = data_of(home)
    for [batch] in whole.loader("train"):
        for row, ids in zip(batch.index.tolist(), batch.source.tolist()):
            kept = [token for token in ids if token]
            expected = kept if len(kept) <= 8 else [*kept[:7], EOS]
            assert [token for token in full[row] if token] == expected


def test_validation_and_test_texts_are_those_of_the_source(home):
    rows = data_of(home).rows("val")
    assert list(zip(rows.sources, rows.targets)) == PAIRS[::20]
    assert rows.references == [[target] for _, target in PAIRS[::20]]
    with pytest.raises(UserError, match=r"has texts only for val, got split=train; .* as ids"):
        data_of(home).rows("train")


@pytest.fixture(scope="module")
def two(home, tmp_path_factory):
    """The nine shards, and a third as many other pairs with the same vocabulary."""
    place = tmp_path_factory.mktemp("other")
    other = [(f"{a} {a}", f"{b} {b}") for a, b in PAIRS[::3]]
    return [home, prepare(place, other, vocabulary=str(home)).path]


def shares_of(data, epochs=1):
    """How many batches of each epoch are of the second corpus."""
    loader = data.loader("train")
    assert all(len({row >= len(PAIRS) for row in rows}) == 1 for rows in numbers(loader))
    found = [[rows[0] >= len(PAIRS) for rows in numbers(epoch(loader, n))] for n in range(epochs)]
    return [sum(one) / len(one) for one in found]


def test_several_corpora_are_mixed_each_pair_once_an_epoch(two):
    data = data_of(two)
    loader = data.loader("train")
    for number in range(2):
        rows = [row for rows in numbers(epoch(loader, number)) for row in rows]
        assert sorted(rows) == list(range(len(PAIRS) + len(PAIRS[::3])))
    order = [rows[0] >= len(PAIRS) for rows in numbers(loader)]
    assert len(list(itertools.groupby(order))) > 10  # not one after the other


def test_shares_go_with_weights_or_temperature(two):
    natural, *_ = shares_of(data_of(two))
    assert shares_of(data_of(two, weights=[1.0, 3.0]), 2) == pytest.approx([0.75] * 2, abs=0.01)
    first, second = (1 - natural) ** 0.2, natural**0.2
    expected = second / (first + second)
    assert shares_of(data_of(two, temperature=5.0), 2) == pytest.approx([expected] * 2, abs=0.01)
    cold = shares_of(data_of(two, temperature=0.001), 2)  # whose shares underflow but for one
    assert all(0 < share < 1 for share in cold)


@pytest.mark.parametrize(
    ("batches", "weights", "expected"),
    [
        ([7, 3], None, [7, 3]),
        ([7, 3], [1, 1], [5, 5]),
        ([5, 5, 5], [1, 1, 5], [2, 2, 11]),
        ([4, 3, 3], [1, 1, 10**6], [1, 1, 8]),
        ([10, 1], [1, 10**-6], [10, 1]),
        ([1] * 12, [1] * 4 + [0.01] * 8, [1] * 12),
        ([2] * 6, [1, 1, *[0.01] * 4], [4, 4, 1, 1, 1, 1]),
    ],
)
def test_shares_are_whole_numbers_that_fill_an_epoch(batches, weights, expected):
    assert _rounded(batches, weights) == expected


def test_a_plan_is_named_by_what_it_reads_not_by_where_or_by_whom(home, tmp_path):
    named = data_of(home).loader("train").batches.plan
    moved = tmp_path / "moved"
    shutil.copytree(home, moved)
    assert data_of(moved, num_workers=2).loader("train").batches.plan == named
    changes = {"max_tokens": 121}, {"max_length": 59}, {"window": 4}, {"seed": 5}, {"round_to": 2}
    for change in changes:
        assert data_of(home, **change).loader("train").batches.plan != named


def test_a_mixed_corpus_goes_on_in_the_next_epoch_and_begins_anew_when_all_was_seen(two):
    loader = data_of(two, weights=[1.0, 3.0]).loader("train")
    seen = [row for number in range(3) for rows in numbers(epoch(loader, number)) for row in rows]
    first = [row for row in seen if row < len(PAIRS)]
    assert len(set(first[: len(PAIRS)])) == len(first[: len(PAIRS)])
    counts = np.bincount([row for row in seen if row >= len(PAIRS)])[len(PAIRS) :]
    assert counts.max() - counts.min() <= 1
    part = data_of(two, weights=[1.0, 3.0]).loader("train")
    part.batches.set_epoch(2)
    part.batches.start_batch = 33
    assert numbers(part) == numbers(epoch(loader, 2))[33:]


def test_what_shards_cannot_do_is_refused_in_words(home, two, tmp_path):
    cases = [
        (lambda: data_of(home, subword_sampling=0.1), "remove loader.subword_sampling"),
        (lambda: data_of(home, long_sources="window"), "set loader.long_sources=truncate"),
        (lambda: data_of(tmp_path), "create it with seqattn prepare output="),
        (lambda: data_of([home, home]), "must list one or more distinct prepared directories"),
        (lambda: data_of(two, weights=[1.0]), "must have one weight per directory (2), got 1"),
        (lambda: data_of(two, weights=[1.0, 2.0], temperature=2.0), "are mutually exclusive"),
        (lambda: data_of(home, max_length=3), "dropped 600 of 600 train pairs"),
    ]
    for make, words in cases:
        with pytest.raises(UserError) as refused:
            make().load()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_another_vocabulary_is_refused(home, tmp_path):
    other = prepare(tmp_path, tokenizer=replace(CONFIG, vocab_size=59))
    with pytest.raises(UserError, match=f"prepare it with vocabulary={home}"):
        data_of([home, other.path]).load()
    foreign = train_tokenizer(["x y z"], ["x z"], TokenizerConfig("bpe", 9), tmp_path)
    options = LoaderOptions(120, max_length=60)
    data = Seq2SeqData(Shards(str(home)), CONFIG, options, str(tmp_path), 1, foreign)
    with pytest.raises(UserError, match="prepare them with vocabulary=RUN/model"):
        data.load()


@pytest.mark.parametrize("fault", ["missing", "cut", "flipped", "lengths", "manifest", "val"])
def test_damage_is_told_before_wrong_rows_are_trained_on(tmp_path, fault):
    home = prepare(tmp_path).path
    name = {"lengths": "lengths.npy", "manifest": "manifest.json", "val": "val.arrow"}
    path = home / name.get(fault, "train-00004.arrow")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 64
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-100] if fault in ("cut", "manifest") else content)
    with pytest.raises(UserError) as refused:
        read_all(data_of(home))
    assert str(path) in str(refused.value)
    assert "seqattn prepare" in str(refused.value)


def test_a_manifest_speaks_of_every_file(home):
    manifest = json.loads((home / "manifest.json").read_text())
    shards = manifest["train"]
    assert len(shards) == 9
    assert sum(shard["pairs"] for shard in shards) == len(PAIRS)
    assert {len(shard["sha256"]) for shard in shards} == {64}
    assert manifest["counts"] == {"read": len(PAIRS)}
    assert not (home / "unfinished").exists()
