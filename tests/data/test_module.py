from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch

from seqattn.data.arrow_tables import content_digest
from seqattn.data.base import Source, Texts
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.tokens import BOS, EOS, PAD
from tests.data.source_helpers import write_text

CONFIG = TokenizerConfig(kind="bpe", vocab_size=40)
WORDS = ["sun", "moon", "sees", "the", "red", "a", "stone", "falls", "not"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(2)
    for split, count in (("train", 60), ("val", 11), ("test", 3)):
        lines = [" ".join(generator.choice(WORDS, generator.integers(1, 9))) for _ in range(count)]
        if split == "train":
            lines[4], lines[9], lines[20] = "", " ".join(WORDS * 9), " "
        write_text(folder, split, [(line, line.upper()) for line in lines])
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def data(corpus, cache):
    return build(corpus, cache)


def build(corpus, cache, **changes):
    options = LoaderOptions(**{"max_tokens": 120, "max_length": 60, **changes})
    source = ParallelText(str(corpus), "en", "de")
    return Seq2SeqData(source, CONFIG, options, str(cache), seed=4)


def lines_of(corpus, name):
    return (corpus / name).read_text().split("\n")[:-1]


def test_batches_hold_the_ids_of_their_rows(data, corpus):
    sources, targets = lines_of(corpus, "train.en"), lines_of(corpus, "train.de")
    seen = []
    for [batch] in data.loader("train"):
        for place, row in enumerate(batch.index.tolist()):
            seen.append(row)
            [source] = data.tokenizer.encode_source([sources[row]])
            [target] = data.tokenizer.encode_target([targets[row]])
            padding = [PAD] * (batch.source.shape[1] - len(source))
            assert batch.source[place].tolist() == source + padding
            padding = [PAD] * (batch.target_output.shape[1] - len(target))
            assert batch.target_output[place].tolist() == target + padding
            assert batch.target_input[place].tolist() == [BOS, *target[:-1], *padding]
    assert target[-1] == EOS
    assert sorted(seen) == [row for row in range(60) if row not in (4, 9, 20)]


def test_a_large_table_of_many_chunks_gives_the_right_rows(tmp_path):
    lines = [f"{'a' * (i % 7 + 1)} {'b' * (i % 3)}" for i in range(2500)]
    for split in ("train", "val"):
        write_text(tmp_path, split, zip(lines, lines))
    data = Seq2SeqData(
        ParallelText(str(tmp_path), "en", "de"), TokenizerConfig("bpe", 10), None, str(tmp_path)
    )

    encoded = data.tokenizer.encode_source(lines)
    rows = 0
    for [batch] in data.loader("train"):
        for place, row in enumerate(batch.index.tolist()):
            assert batch.source[place, : len(encoded[row])].tolist() == encoded[row]
            rows += 1
    assert rows == 2500


def test_what_is_dropped_is_reported(data, corpus):
    data.load()

    assert data.notices() == [
        "dropped 3 of 60 train pairs: 1 longer than 60 tokens, 2 with an empty side; "
        f"read from {corpus}/train.en and {corpus}/train.de",
        f"kept all 11 val pairs; read from {corpus}/val.en and {corpus}/val.de",
    ]


def test_evaluation_gets_every_text_as_it_came(data, corpus):
    for split in ("train", "test"):
        sources, targets = (lines_of(corpus, f"{split}.{side}") for side in ("en", "de"))
        assert data.rows(split) == Texts(sources, targets, [[one] for one in targets], None)


def test_validation_batches_are_always_the_same_and_hold_every_pair(data):
    loader = data.loader("val")
    first = [batch.index.tolist() for batch in loader]
    loader.batches.set_epoch(3)

    assert [batch.index.tolist() for batch in loader] == first
    assert sorted(row for batch in first for row in batch) == list(range(11))


def test_vocabulary_and_ids_are_made_once(corpus, tmp_path, capfd):
    first = build(corpus, tmp_path)
    first.load()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}
    kept = [path for path in files if path.parent.name == "tokens"]
    assert len(kept) == 2
    assert capfd.readouterr().err.count("training a joint bpe vocabulary") == 1

    again = build(corpus, tmp_path)
    again.load()
    again.load()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")} == files
    assert capfd.readouterr().err == ""
    assert again.tokenizer.fingerprint == first.tokenizer.fingerprint


def test_another_tokenizer_does_not_meet_the_old_ids(corpus, cache):
    own = train_tokenizer(["the sun"] * 9, ["THE MOON"] * 9, TokenizerConfig("bpe", 17), cache)
    source = ParallelText(str(corpus), "en", "de")
    data = Seq2SeqData(source, CONFIG, None, str(cache), tokenizer=own)

    assert data.tokenizer is own
    assert all(batch.source.max() < 17 for [batch] in data.loader("train"))
    batch = next(iter(data.loader("val")))
    [ids] = own.encode_source([lines_of(corpus, "val.en")[int(batch.index[0])]])
    assert batch.source[0, : len(ids)].tolist() == ids


def test_texts_that_hold_marks_of_other_texts_have_a_digest_of_their_own():
    """Joined by any mark, or without their lengths, each two of these would read the same."""
    tables = [
        {"source": ["a\0b", "c"], "target": ["d", "e"]},
        {"source": ["a", "b\0c"], "target": ["d", "e"]},
        {"source": ["a", "x"], "target": ["ytargetz", "e"]},
        {"source": ["a", "xtargety"], "target": ["z", "e"]},
        {"source": ["a", "x"], "target": ["", "e"]},
        {"source": ["a", ""], "target": ["x", "e"]},
    ]
    found = {content_digest(datasets.Dataset.from_dict(one)) for one in tables}
    assert len(found) == len(tables)


def test_the_cache_is_where_the_environment_says(corpus, tmp_path, monkeypatch):
    source = ParallelText(str(corpus), "en", "de")
    monkeypatch.setenv("SEQATTN_CACHE", str(tmp_path))
    assert Seq2SeqData(source, CONFIG).cache_dir == tmp_path
    monkeypatch.delenv("SEQATTN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Seq2SeqData(source, CONFIG).cache_dir == tmp_path / "home/.cache/seqattn"


def test_data_that_cannot_train_is_refused(corpus, cache):
    with pytest.raises(UserError, match="the train split has no usable pairs: dropped 60 of 60"):
        build(corpus, cache, max_length=2).load()
    untargeted = Seq2SeqData(ParallelText(str(corpus), "en", None), CONFIG, None, str(cache))
    with pytest.raises(UserError, match="training requires targets; set"):
        untargeted.load()
    assert untargeted.rows("test").targets == []

    class Nothing(Source):
        def load(self, split, cache_dir=None):
            return datasets.Dataset.from_dict({"source": [], "target": []})

    nothing = Seq2SeqData(Nothing(), CONFIG, None, str(cache))
    with pytest.raises(UserError, match="the train split has no pairs"):
        nothing.load()


def state_after(loader, steps):
    """The state of a loader after some steps of its epoch."""
    for _ in zip(range(steps), loader):
        pass
    return loader.state_dict()


def test_a_loader_begins_at_any_step_of_any_epoch(data):
    loader = data.loader("train")
    loader.set_epoch(1)
    whole = [batch.index.tolist() for [batch] in loader]

    state = state_after(loader, 2)
    loader.load_state_dict(state)
    loader.set_epoch(1)  # as Lightning says it, once training begins
    assert [batch.index.tolist() for [batch] in loader] == whole[2:]
    assert [batch.index.tolist() for [batch] in loader] == whole
    loader.load_state_dict(state)
    loader.set_epoch(2)
    assert len(list(loader)) == len(whole)


def test_resuming_within_an_epoch_of_other_batches_is_refused(corpus, cache):
    loader = build(corpus, cache).loader("train")
    other = build(corpus, cache, max_tokens=150).loader("train")

    with pytest.raises(UserError, match="cannot resume after step 2 of the epoch: the data, batch"):
        other.load_state_dict(state_after(loader, 2))
    # At an epoch's start or end nothing can be replayed or skipped.
    other.load_state_dict(state_after(loader, len(loader)))
    other.set_epoch(1)
    assert sum(len(batch.index) for [batch] in other) == 57


class TwoRanks:
    """What the data asks of a trainer."""

    world_size = 2

    def __init__(self, rank, device="cpu"):
        self.global_rank = rank
        self.strategy = SimpleNamespace(root_device=torch.device(device))


def test_ranks_take_their_share_from_the_trainer(corpus, cache):
    shares = []
    for rank in range(2):
        data = build(corpus, cache)
        loader = data.loader("train", TwoRanks(rank))
        shares.append([row for [b] in loader for row in b.index.tolist()])
        assert len(loader) * 2 >= len(build(corpus, cache).loader("train"))

    assert len(set(shares[0]) | set(shares[1])) == len(shares[0]) + len(shares[1]) == 57


@pytest.mark.parametrize(
    ("device", "given", "pinned"),
    [("cuda", None, True), ("cpu", None, False), ("cuda", False, False), ("cpu", True, True)],
)
def test_batches_for_a_gpu_are_page_locked_unless_told_otherwise(
    corpus, cache, device, given, pinned
):
    data = build(corpus, cache, pin_memory=given)
    loader = data.loader("train", TwoRanks(0, device))

    assert loader.pin_memory is pinned


def test_a_missing_validation_file_is_noticed_before_the_vocabulary_is_trained(corpus, tmp_path):
    for names, said in (
        ({"val": "no"}, r"the val split requires no.en in .*; or set data.hold_out=0.05 to "),
        ({"test": "no"}, r"the test split requires no.en in "),
    ):
        source = ParallelText(str(corpus), "en", "de", **names)
        data = Seq2SeqData(source, CONFIG, cache_dir=str(tmp_path))
        data.scored = ["val", "test"]
        with pytest.raises(UserError, match=said):
            data.tokenizer  # noqa: B018
    absent = Table({"train": "no.csv", "val": "neither.csv"})
    with pytest.raises(UserError, match=r"^no\.csv and neither\.csv do not exist; correct their p"):
        Seq2SeqData(absent, CONFIG, cache_dir=str(tmp_path)).tokenizer  # noqa: B018
    assert not (tmp_path / "tokenizers").exists()
    Seq2SeqData(ParallelText(str(corpus), "en", "de"), CONFIG, cache_dir=str(tmp_path)).tokenizer  # noqa: B018
    assert (tmp_path / "tokenizers").exists()


def test_equal_splits_and_equal_sides_are_told(corpus, cache):
    def told(**changes):
        names = {"root": str(corpus), "source_suffix": "en", "target_suffix": "de", **changes}
        data = Seq2SeqData(ParallelText(**names), CONFIG, cache_dir=str(cache))
        data.load()
        return [line for line in data.notices() if line.startswith("warning: ")]

    assert told() == told(train="val", hold_out=3) == []
    [same_split] = told(val="train")
    assert same_split.startswith("warning: val has the same text as train (")
    [same_side] = told(target_suffix="en")
    assert same_side.startswith("warning: sources and targets of val are equal")


@pytest.mark.parametrize(
    ("pairs", "copies"),
    [
        ([], True),
        ([("42", "42"), ("1.5", "1,5"), (" 7", "7 ")], True),
        ([("42", "forty-two"), ("7", "seven"), ("8", "8")], False),
        ([(str(number), str(number)) for number in range(len(WORDS))], False),  # a task on digits
    ],
)
def test_pairs_show_whether_texts_without_a_letter_are_copied(pairs, copies, tmp_path):
    for split in ("train", "val"):
        write_text(tmp_path, split, [*pairs, *((word, word.upper()) for word in 4 * WORDS)])
    data = build(tmp_path, tmp_path / "cache")
    data.load()
    assert data.copies_letterless is copies
