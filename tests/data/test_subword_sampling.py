"""Training texts are cut into pieces by chance that seed, row and epoch decide."""

import random

import numpy as np
import pytest
import torch

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.tokens import EOS, PAD
from tests.data.source_helpers import write_text

SYLLABLES = ["ba", "ne", "ti", "lo", "ru", "ka"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split, count in (("train", 40), ("val", 7)):
        draw = np.random.default_rng(count)
        words = ["".join(draw.choice(SYLLABLES, n % 3 + 2)) for n in range(60)]
        lines = [" ".join(draw.choice(words, n % 7 + 1)) for n in range(count)]
        write_text(folder, split, [(line, line.upper()) for line in lines])
    return folder


def build(corpus, kind="unigram", seed=3, alpha=0.3, **changes):
    options = LoaderOptions(max_tokens=200, max_length=60, subword_sampling=alpha, **changes)
    source = ParallelText(str(corpus), "en", "de")
    config = TokenizerConfig(kind, vocab_size=70)
    return Seq2SeqData(source, config, options, str(corpus / "cache"), seed=seed)


def batches_of(loader):
    """The batches of a loader, or of the steps of one."""
    for item in loader:
        yield from item if isinstance(item, list) else [item]


def rows_of(loader, epoch=0):
    """Source and target ids of each row in an epoch."""
    loader.batches.set_epoch(epoch)
    return {
        row: tuple(tuple(t for t in ids if t != PAD) for ids in pair)
        for batch in batches_of(loader)
        for row, *pair in zip(
            batch.index.tolist(), batch.source.tolist(), batch.target_output.tolist()
        )
    }


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_each_epoch_has_other_pieces_of_the_same_texts(corpus, kind):
    data = build(corpus, kind)
    texts = data.rows("train")
    loader = data.loader("train")
    first, second = rows_of(loader), rows_of(loader, 1)
    plain = rows_of(build(corpus, kind, alpha=None).loader("train"))
    assert len(first) == 40
    for found in (first, second):
        assert sum(found[row] != plain[row] for row in plain) > 9
        for row, (source, target) in found.items():
            assert source[-1] == target[-1] == EOS
            assert data.tokenizer.decode_target([source, target]) == [
                texts.sources[row],
                texts.targets[row],
            ]
    assert sum(first[row] != second[row] for row in first) > 9


def test_pieces_depend_on_seed_row_and_epoch_alone(corpus):
    whole = build(corpus)
    loader = whole.loader("train")
    expected = rows_of(loader, 2)
    whole.tokenizer.sample_source(
        ["belief"], 0.3, [random.Random(9)]
    )  # draws in between change nothing
    assert rows_of(build(corpus).loader("train"), 2) == expected
    assert rows_of(build(corpus, num_workers=1).loader("train"), 2) == expected
    dataset = build(corpus)
    dataset.load()
    rows = dataset._splits["train"]
    rows.epoch = 2
    alone = rows.batch([5])
    assert tuple(t for t in alone.source[0].tolist() if t) == expected[int(alone.index[0])][0]
    other = rows_of(build(corpus, seed=4).loader("train"), 2)
    assert sum(other[row] != expected[row] for row in expected) > 9


def test_a_run_resumed_within_an_epoch_sees_the_same_pieces(corpus):
    loader = build(corpus).loader("train")
    rows_of(loader)
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    again = build(corpus).loader("train")
    again.load_state_dict(loader.state_dict())
    rest, resumed = list(batches_of(batches)), list(batches_of(again))
    assert len(resumed) == len(rest) >= 2
    for mine, theirs in zip(resumed, rest, strict=True):
        assert torch.equal(mine.source, theirs.source)
        assert torch.equal(mine.target_output, theirs.target_output)


def test_validation_and_sources_in_windows_are_cut_as_ever(corpus):
    data = build(corpus)
    assert rows_of(data.loader("val")) == rows_of(build(corpus, alpha=None).loader("val"))
    windows = {"long_sources": "window", "max_source_length": 3}
    data, plain = build(corpus, **windows), build(corpus, alpha=None, **windows)
    loaders = data.loader("train"), plain.loader("train")
    lengths = list(map(len, data.tokenizer.encode_source(data.rows("train").sources)))
    sources = [
        sorted(
            (row, *ids)
            for batch in batches_of(loader)
            for row, ids in zip(batch.index.tolist(), batch.source.tolist(), strict=True)
            if lengths[row] > 3
        )
        for loader in loaders
    ]
    assert len(sources[0]) > 20
    assert sources[0] == sources[1]
    assert data.longest == plain.longest
    assert max(batch.source.shape[1] for [batch] in loaders[0]) == 3


def test_characters_are_not_sampled(corpus):
    with pytest.raises(UserError, match=r"^loader.subword_sampling needs subwords on both sides"):
        build(corpus, "characters")
