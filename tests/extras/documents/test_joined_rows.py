"""Rows that join the pairs of a document: what they hold, and their batches in each epoch."""

import random
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqattn.analysis.word_alignment import words_of
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.documents.joined_rows import JoinedRows
from seqattn.extras.documents.joined_sampler import JoinedSampler, Joins
from seqattn.tokens import PAD
from tests.absent import of_extra
from tests.cli.small import (
    checkpoint,
    pairs,
    place,
    refusal,
    succeed,
    train,
    train_arguments,
    write_corpus,
    write_split,
)
from tests.data.source_helpers import json_lines

FOLDS = {"normalization": "nmt_nfkc", "line_breaks": True}
ENDS = (3, 4, 10, 24, 25, 59)
LONGEST = 40


def in_documents(rows):
    """Sixty pairs of 2 to 6 words as lines: documents of 4, 1, 6, 14, 1 and 34 pairs."""
    for number, pair in enumerate(rows):
        yield tuple(" ".join(text.split()[: 2 + number % 5]) for text in pair)
        if number in ENDS:
            yield "", ""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = write_corpus(tmp_path_factory.mktemp("documents") / "corpus")
    write_split(root, "train", in_documents(pairs()))
    return root


def data_of(corpus, kind=Seq2SeqData, source=None, seed=3, tokenizer=None, more=None, **options):
    source = source or ParallelText(str(corpus), "en", "de", documents="lines")
    config = TokenizerConfig(**{**FOLDS, "kind": "bpe", "vocab_size": 60, **(tokenizer or {})})
    loader = LoaderOptions(**{"max_tokens": 200, "max_length": LONGEST, **options})
    cache = str(corpus.parent / "cache")
    return kind(source, config, loader, cache, seed, None, join=JoinedRows, **(more or {}))


def lines_of(corpus):
    """Pairs of the lines of train, by their row."""
    sides = ((corpus / f"train.{side}").read_text().splitlines() for side in ("en", "de"))
    return dict(enumerate(zip(*sides, strict=True)))


def rows_of(loader, epoch):
    """Each row of an epoch as the pairs that it joins, by their rows in the split."""
    loader.set_epoch(epoch)
    joined = loader.data
    found = []
    for batch in loader.batches:
        sizes, firsts = np.divmod(batch, joined.joins.number)
        spans = zip(firsts, sizes, strict=True)
        found.append([joined.rows[first : first + size + 1].tolist() for first, size in spans])
    return found


def without_padding(ids):
    return [[token for token in row if token != PAD] for row in ids.tolist()]


@pytest.mark.parametrize(
    ("tokenizer", "options"),
    [
        ({}, {}),
        ({"kind": "unigram", "joint": False, "vocab_size": None}, {"max_length": 24}),
        ({}, {"long_sources": "truncate", "max_source_length": 12}),
        ({}, {"long_sources": "window", "max_source_length": 12}),
        ({"normalization": "nmt_nfkc_cf"}, {"num_workers": 1}),
    ],
)
def test_rows_are_texts_of_several_lines_of_a_document(corpus, tokenizer, options):
    """Each pair is in one row of an epoch; windows of long sources are rows of their own."""
    data, lines = data_of(corpus, tokenizer=tokenizer, **options), lines_of(corpus)
    data.load()
    loader, encode = data.loader("train"), data.tokenizer
    source_limit = options.get("max_source_length", data.options.max_length)
    sizes = set()
    for epoch in range(3):
        wanted = [row for batch in rows_of(loader, epoch) for row in batch]
        assert sorted(n for row in wanted for n in row) == loader.data.rows.tolist()
        texts, loader.batches.start_batch = iter(wanted), 0
        for [batch] in loader:
            sides = without_padding(batch.source), without_padding(batch.target_output)
            for read, said, first in zip(*sides, batch.index.tolist(), strict=True):
                row = next(texts)
                assert first == row[0]
                assert all(all(lines[n]) for n in range(row[0], row[-1] + 1)), "two documents"
                source, target = ("\n".join(side) for side in zip(*map(lines.get, row)))
                [complete] = encode.encode_source([source])
                if len(complete) <= source_limit or len(row) > 1:
                    assert read == complete
                assert [said] == encode.encode_target([target])
                assert len(read) <= source_limit
                assert len(said) <= data.options.max_length
                sizes.add(len(row))
        assert next(texts, None) is None
    assert len(sizes) > 1
    assert 1 in sizes


def test_epochs_have_other_rows_in_as_many_steps(corpus):
    data = data_of(corpus)
    data.rank_batches = 2
    data.load()
    loader = data.loader("train")
    epochs = [rows_of(loader, epoch) for epoch in range(60)]
    assert {len(epoch) for epoch in epochs} == {len(loader.batches)}
    assert len(loader.batches) == 2 * len(loader)
    assert len({str(sorted(map(sorted, epoch))) for epoch in epochs}) == 60
    again = data_of(corpus)
    again.rank_batches = 2
    again.load()
    assert rows_of(again.loader("train"), 5) == epochs[5]
    other = data_of(corpus, seed=4)
    other.load()
    assert rows_of(other.loader("train"), 5) != epochs[5]
    assert data.longest == (LONGEST, LONGEST - 1)  # of all epochs, as a model must hold them


def test_each_doubling_of_a_rows_pairs_is_as_probable():
    count = 1 << 16
    joins = Joins(np.full((2, count), 5), np.arange(count) == 0, (5 * 15, 1000))
    assert joins.reach.max() == 15
    _, sizes = joins.draw(np.random.default_rng(2))
    shares = [np.mean((sizes >= low) & (sizes < 2 * low)) for low in (1, 2, 4, 8)]
    assert shares == pytest.approx([0.25] * 4, abs=0.02)


def test_a_pair_that_is_left_out_ends_a_document(corpus, tmp_path):
    lines = [(one, one.upper()) for one in ("a b", "b a", "a " * 50, "a a", "b b")]
    write_split(tmp_path / "gap", "train", lines)
    write_split(tmp_path / "gap", "val", lines[:1])
    data = data_of(tmp_path / "gap", tokenizer={"vocab_size": None})
    data.load()
    loader = data.loader("train")
    rows = {tuple(row) for epoch in range(9) for batch in rows_of(loader, epoch) for row in batch}
    assert rows == {(0,), (1,), (0, 1), (3,), (4,), (3, 4)}
    assert data.notices()[0].startswith(
        "dropped 1 of 5 train pairs: 1 longer than 40 tokens, 0 with an empty side; joined "
        "within 1 documents up to "
    )


def test_ends_of_documents_are_no_pairs_that_are_left_out(corpus):
    data = data_of(corpus)
    data.load()
    notice = "kept all 60 train pairs; joined within 6 documents up to "
    assert data.notices()[0].startswith(notice)


def test_tables_are_joined_as_lines_are(corpus, tmp_path):
    document, rows = 0, []
    for source, target in in_documents(pairs()):
        if source:
            rows.append({"source": source, "target": target, "talk": document})
        document += not source
    path = json_lines(tmp_path / "rows.jsonl", rows)
    files = {"train": path, "val": path}
    table, text = data_of(corpus, source=Table(files, documents="talk")), data_of(corpus)
    ids = []
    for data in (table, text):
        data.load()
        batches = data.loader("train")
        ids.append([without_padding(batch.target_output) for [batch] in batches])
    assert ids[0] == ids[1]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_rows_of_one(corpus, world):
    def loader(rank, ranks):
        data = data_of(corpus)
        data.rank_batches = 4 // ranks
        data.load()
        device = SimpleNamespace(root_device=torch.device("cpu"))
        trainer = SimpleNamespace(global_rank=rank, world_size=ranks, strategy=device)
        return data.loader("train", trainer)

    whole, parts = loader(0, 1), [loader(rank, world) for rank in range(world)]
    assert {part.batches.plan for part in parts} == {whole.batches.plan}
    for epoch in range(3):
        for part in (whole, *parts):
            part.set_epoch(epoch)
        ids = [[without_padding(b.source) for step in part for b in step] for part in parts]
        assert [without_padding(b.source) for step in whole for b in step] == [
            batch for batches in zip(*ids, strict=True) for batch in batches
        ]


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_loader_goes_on_within_an_epoch(corpus, epoch):
    data = data_of(corpus)
    data.load()
    whole, part = data.loader("train"), data.loader("train")
    whole.set_epoch(epoch)
    batches = [batch.source.tolist() for [batch] in whole]
    whole.set_epoch(epoch)
    for _ in zip(range(3), whole, strict=False):
        state = whole.state_dict()
    part.load_state_dict(state)
    part.set_epoch(epoch)  # as Lightning says it
    assert [batch.source.tolist() for [batch] in part] == batches[3:]


@pytest.mark.parametrize("change", ["text", "border", {"max_length": 41}, {"max_tokens": 199}])
def test_a_loader_of_other_rows_does_not_go_on(corpus, tmp_path, change):
    data = data_of(corpus)
    data.load()
    loader = data.loader("train")
    for _ in zip(range(2), loader, strict=False):
        state = loader.state_dict()
    root = corpus
    if isinstance(change, str):
        root, rows = write_corpus(tmp_path / "corpus"), [*pairs()]
        rows[7] = (f"the {rows[7][0]}", rows[7][1]) if change == "text" else rows[7]
        rows = [*in_documents(rows)]
        rows = [*rows[:20], ("", ""), *rows[20:]] if change == "border" else rows
        write_split(root, "train", rows)
    other = data_of(root, **({} if isinstance(change, str) else change))
    other._tokenizer = data.tokenizer
    other.load()
    with pytest.raises(UserError, match="cannot resume after step 2 of the epoch"):
        other.loader("train").load_state_dict(state)


def test_links_are_those_of_the_pairs(corpus, tmp_path):
    draw, lines = random.Random(2), lines_of(corpus)
    links, file = {}, tmp_path / "links"
    for row, pair in lines.items():
        words = [range(len(text.split())) for text in pair]
        count = 3 if pair[0] else 0
        links[row] = {(draw.choice(words[0]), draw.choice(words[1])) for _ in range(count)}
    text = "".join(" ".join(f"{i}-{j}" for i, j in one) + "\n" for one in links.values())
    file.write_text(text)
    more = {"links": {"train": ("links", str(file))}}
    data = data_of(corpus, of_extra("align.guided_data").LinkedData, more=more)
    data.load()
    loader, seen = data.loader("train"), 0
    for row_batch, [batch] in zip(rows_of(loader, 0), loader, strict=True):
        for n, row in enumerate(row_batch):
            wanted, base = torch.zeros_like(batch.links[n]), [0, 0]
            names = (data.tokenizer.source_pieces, batch.source[n]), (
                data.tokenizer.target_pieces, batch.target_output[n]
            )  # fmt: skip
            read, said = (words_of(name(ids.tolist())) for name, ids in names)
            for member in row:
                for i, j in links[member]:
                    pieces = torch.tensor(said[base[1] + j][1])[:, None]
                    wanted[pieces, torch.tensor(read[base[0] + i][1])] = True
                base = [b + len(text.split()) for b, text in zip(base, lines[member])]
            assert torch.equal(batch.links[n], wanted)
            seen += len(row) > 1
    assert seen


def test_many_pairs_are_planned_quickly():
    count = 200_000
    draw = np.random.default_rng(1)
    lengths = draw.integers(5, 60, (2, count))
    for begins in (draw.random(count) < 0.05, np.arange(count) == 0):
        start = time.process_time()
        sampler = JoinedSampler(Joins(lengths, begins, (256, 256)), BatchLimits(8192), seed=1)
        next(iter(sampler))
        assert time.process_time() - start < 2


def test_few_pairs_make_as_many_steps_in_every_epoch():
    for seed in range(60):
        draw = np.random.default_rng(seed)
        count = int(draw.integers(6, 30))
        joins = Joins(draw.integers(2, 9, (2, count)), draw.random(count) < 0.3, (20, 20))
        sampler = JoinedSampler(joins, BatchLimits(24), seed=seed, step_batches=2)
        for epoch in range(20):
            sampler.set_epoch(epoch)
            assert len([*sampler]) == len(sampler) > 0


REFUSED = [
    (("tokenizer=unigram",), "data.documents joins pairs by line breaks, which must be pieces of "
     "the vocabulary; use one trained with tokenizer=documents"),
    (("tokenizer=characters", "tokenizer.normalization=nmt_nfkc", "tokenizer.line_breaks=true",
      "tokenizer.vocab_size=null"), "data.documents joins pairs by line breaks, which must be"),
    (("loader.subword_sampling=0.1",), "data.documents needs texts that stay as they are; remove "
     "loader.subword_sampling"),
    (("loader.max_length=6",), "data.documents joins no pairs: no two of a document have "
     "together at most loader.max_length=6 tokens; raise it, or remove data.documents"),
    (("data.documents=document_id",), "data.documents must be one of lines or null, got"),
    (("task=qa_generative",), "task=qa_generative does not support data=parallel_text"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_what_cannot_be_joined_is_refused_in_a_line(capfd, corpus, tmp_path, words, line):
    given = ("data.documents=lines", "tokenizer=documents")
    names = [word.partition("=")[0] for word in words]
    given = [word for word in given if word.partition("=")[0] not in names]
    words = train_arguments(corpus, *given, *words, f"run_dir={tmp_path}/run")
    assert refusal(capfd, "train", *words).startswith(line)


@pytest.mark.parametrize("data", ["demo_translation", "denoising", "squad", "synthetic", "shards"])
def test_other_data_has_no_documents(capfd, tmp_path, data):
    words = (f"data={data}", "data.documents=lines", f"run_dir={tmp_path}/run")
    line = "unknown key data.documents; data=parallel_text|table has it"
    assert refusal(capfd, "train", *words) == line


def test_texts_of_several_lines_are_refused(corpus, tmp_path):
    rows = [{"source": "a\n", "target": " b", "talk": 1}, {"source": "a", "target": "b\n\tc"}]
    files = dict.fromkeys(("train", "val"), json_lines(tmp_path / "rows.jsonl", rows))
    source = Table(files, documents="talk")
    data = data_of(corpus, source=source, tokenizer={"vocab_size": None})
    with pytest.raises(UserError) as caught:
        data.load()
    assert str(caught.value) == (
        "data.documents joins pairs by line breaks, but a target has some: 'b\\n\\tc'; put each "
        "line in a row of its own"
    )


def words_for(corpus, *more, steps):
    given = ("data.documents=lines", "tokenizer=documents", "model.dropout=0.3")
    given += ("checkpoint.average=last", "loader.max_length=40", "loader.max_tokens=100", *more)
    return train_arguments(corpus, *given, steps=steps, every=2)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_run_goes_on_within_its_first_epochs(capfd, corpus, tmp_path, ranks):
    def trained(words):
        succeed(capfd, "train", *words) if ranks > 1 else train(words)

    more = (f"trainer.devices={ranks}",) if ranks > 1 else ()
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    trained([*words_for(corpus, *more, steps=22 // ranks), f"run_dir={whole}"])
    stops = []
    for steps in (4, 12, 20, 22):
        steps //= ranks
        words = [*words_for(corpus, *more, steps=steps), f"run_dir={parted}"]
        trained([*words, f"resume={parted}"] if stops else words)
        stops.append(place(checkpoint(parted))[1:3])
    assert [epoch for epoch, _ in stops] == [0, 1, 2, 2], stops
    assert all(step for _, step in stops)
    mine, theirs = checkpoint(parted), checkpoint(whole)
    assert place(mine) == place(theirs)
    for part in ("state_dict", "optimizer_states"):
        assert str(mine[part]) == str(theirs[part])
    one, other = (load_file(end / "model" / "model.safetensors") for end in (whole, parted))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_uptraining_reads_what_training_read(capfd, corpus, tmp_path, monkeypatch):
    train([*words_for(corpus, steps=2), f"run_dir={tmp_path}/run"])
    lengths, batch = [], JoinedRows.batch

    def noted(rows, indices):
        lengths.append(batch(rows, indices).source.shape[1])
        return batch(rows, indices)

    monkeypatch.setattr(JoinedRows, "batch", noted)
    words = ("heads=mqa", "uptrain_steps=2", "scores=false", f"output={tmp_path}/converted")
    succeed(capfd, "convert", f"bundle={tmp_path}/run/model", *words)
    assert max(lengths) > 30
