"""The suite of shards: what it measures of loading, training and preparing."""

import pytest
import torch

from seqattn.benchmarks.random_shards import load, write_random
from seqattn.benchmarks.shard_loading import ShardsSuite
from seqattn.data.vocabulary import train_tokenizer
from seqattn.errors import UserError
from tests.benchmarks.small import SHAPE
from tests.data.prepared import CONFIG, PAIRS


class Sentences:
    """Six hundred pairs and their vocabulary."""

    def __init__(self, cache):
        self.cache = cache

    def texts(self):
        sources, targets = zip(*PAIRS)
        return PAIRS, train_tokenizer(sources, targets, CONFIG, self.cache)


def test_each_part_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    suite = ShardsSuite(
        corpus=Sentences(tmp_path), shape=lambda size: SHAPE, pairs=(400,), in_memory=400,
        batches=5, prepared=300, steps=1, rounds=1, folder=str(tmp_path),
    )  # fmt: skip
    monkeypatch.setattr("seqattn.benchmarks.random_shards.VOCABULARY", SHAPE.vocabulary)
    loading, training, preparing = suite.measure()
    assert [(row["pairs"], row["from"]) for row in loading.rows] == [
        (400, "shards"),
        (400, "memory"),
    ]
    shards, memory = loading.rows
    assert shards["batches"] == memory["batches"]
    assert abs(shards["padding"] - memory["padding"]) < 0.05
    assert [row["from"] for row in training.rows] == ["shards", "memory"]
    assert training.rows[1]["x memory"].median == 1
    [row] = preparing.rows
    assert 250 < row["kept"] <= 300
    assert row["tokens"] > 300 * 10
    assert list(tmp_path.glob("tmp*")) == []


def test_training_from_both_needs_a_size_that_memory_holds(tmp_path):
    few = {"corpus": Sentences(tmp_path), "pairs": (400, 300), "in_memory": 299}
    with pytest.raises(UserError, match=r"suite.in_memory must be .*pairs \(300\).*rounds=0"):
        ShardsSuite(**few)
    ShardsSuite(**few, rounds=0)


def test_so_many_batches_are_loaded_and_one_has_a_padding_but_no_speed(tmp_path):
    write_random(tmp_path / "shards", 200, 0)
    assert load("shards", tmp_path / "shards", 256, count=3)["batches"] == 3
    alone = load("shards", tmp_path / "shards", 256, count=1)
    assert (alone["batches"], alone["target tokens/s"]) == (1, None)
    assert 0 <= alone["padding"] < 1


def test_memory_that_is_taken_for_a_moment_counts(tmp_path, monkeypatch):
    write_random(tmp_path / "shards", 2000, 0)
    original = torch.from_numpy

    def wasteful(array):
        waste = torch.zeros(40_000_000, dtype=torch.int8) + 1
        del waste
        return original(array)

    monkeypatch.setattr(torch, "from_numpy", wasteful)
    assert load("shards", tmp_path / "shards", 2000, 20)["MB"] > 35
