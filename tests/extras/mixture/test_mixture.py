"""Training on several sources: their batches, splits and vocabulary, and runs that go on."""

import gzip
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.mixture.schedule import Stage
from seqattn.extras.mixture.source import Mixture
from seqattn.training.setup import join_of
from tests.absent import of_extra
from tests.cli.small import (
    checkpoint,
    logged,
    pairs,
    place,
    refusal,
    run,
    train,
    train_arguments,
    write_split,
)
from tests.data.source_helpers import json_lines

CONFIG = TokenizerConfig(kind="bpe", vocab_size=60, normalization="nmt_nfkc", line_breaks=True)
STAGES = [
    {"weights": {"clean": 2, "back": 1}, "until": "2 passes of back"},
    {"weights": {"clean": 1, "lines": 1}},
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Forty clean pairs, sixty back-translated ones, and documents of ten; clean has val, test."""
    folder, rows = tmp_path_factory.mktemp("mixture"), [*pairs()]
    write_split(folder / "clean", "train", rows[:40])
    write_split(folder / "clean", "val", rows[::10])
    write_split(folder / "clean", "test", rows[3::12])
    write_split(folder / "back", "train", [(f"so {one}", f"also {two}") for one, two in rows])
    ends = [[*rows[n : n + 10], ("", "")] for n in range(0, 50, 10)]
    write_split(folder / "lines", "train", [row for rows in ends for row in rows])
    return folder


def source_of(corpora, name, **more):
    more |= {"documents": "lines"} if name == "lines" else {}
    return ParallelText(str(corpora / name), "en", "de", **more)


def mixture_of(corpora, *names, stages=None, **more):
    return Mixture({name: source_of(corpora, name) for name in names}, stages, **more)


def data_of(corpora, source=None, seed=3, **options):
    source = source or mixture_of(corpora, "clean", "back", "lines", stages=STAGES)
    loader = LoaderOptions(**{"max_tokens": 100, "max_length": 40, **options})
    parts = join_of(source, CONFIG, loader)
    data = Seq2SeqData(source, CONFIG, loader, str(corpora / "cache"), seed, **parts)
    data.load()
    return data


def trainer_of(rank, world):
    device = SimpleNamespace(type="cpu")
    return SimpleNamespace(
        global_rank=rank, world_size=world, strategy=SimpleNamespace(root_device=device)
    )


def steps_of(data, epochs=(0, 1, 2), rank=0, world=1):
    """The sources of each batch of the steps of some epochs, as texts."""
    data.rank_batches = 4 // world
    loader = data.loader("train", trainer_of(rank, world))
    return [step for epoch in epochs for step in epoch_of(loader, epoch)]


def epoch_of(loader, epoch):
    loader.set_epoch(epoch)
    return [[batch.source.tolist() for batch in step] for step in loader]


def texts_of(data, step):
    return [text for batch in step for text in data.tokenizer.decode_target(batch)]


@pytest.fixture(scope="module")
def data(corpora):
    return data_of(corpora)


def test_the_order_of_the_sources_changes_nothing(corpora, data):
    mixture = mixture_of(corpora, "lines", "back", "clean", stages=STAGES)
    assert steps_of(data_of(corpora, mixture)) == steps_of(data)


def test_a_mixture_of_one_source_has_its_batches(corpora):
    alone = data_of(corpora, source_of(corpora, "clean"))
    mixed = data_of(corpora, mixture_of(corpora, "clean"))
    assert steps_of(mixed) == steps_of(alone)


def test_all_epochs_have_as_many_steps_each_of_one_source(corpora, data):
    steps = steps_of(data, epochs=range(4))
    loader = data.loader("train")
    sampler = loader.batches
    assert len(steps) == 4 * len(loader) == 4 * sum(sampler.sizes.values())
    drawn = [[*sampler.sizes][n] for n in sampler.schedule.sources(0, len(steps))]
    assert [*sampler.sizes] == ["back", "clean", "lines"]
    for name, step in zip(drawn, steps, strict=True):
        texts = texts_of(data, step)
        assert all(text.startswith("so ") == (name == "back") for text in texts)
        assert any("\n" in text for text in texts) <= (name == "lines")
    assert {*drawn} == {"clean", "back", "lines"}


def test_each_pair_of_a_source_comes_once_in_each_pass_over_it(corpora, data):
    steps, sampler = steps_of(data, epochs=range(6)), data.loader("train").batches
    drawn = sampler.schedule.sources(0, len(steps)).tolist()
    for number, (name, size) in enumerate(sampler.sizes.items()):
        read = [step for n, step in zip(drawn, steps, strict=True) if n == number]
        lines = [source for source, _ in source_of(corpora, name).stream("train") if source]
        assert len(read) >= 2 * size
        orders = []
        for first in range(0, len(read) - size + 1, size):
            texts = [text for step in read[first : first + size] for text in texts_of(data, step)]
            texts = [line for text in texts for line in text.split("\n")]
            assert sorted(texts) == sorted(lines), (name, first)
            orders.append(texts)
        assert orders[0] != orders[1]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_step_has_the_same_batches_on_any_number_of_ranks(data, world):
    ranks = [steps_of(data, rank=rank, world=world) for rank in range(world)]
    joined = [
        [batch for group in zip(*step, strict=True) for batch in group]
        for step in zip(*ranks, strict=True)
    ]
    assert joined == steps_of(data)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_loader_goes_on_within_an_epoch_and_into_the_next(corpora, data, epoch):
    steps, loader = steps_of(data, epochs=(epoch, epoch + 1)), data.loader("train")
    loader.set_epoch(epoch)
    for _ in zip(range(7), loader, strict=False):
        state = loader.state_dict()
    fresh = data_of(corpora)
    fresh.rank_batches = 4
    on = fresh.loader("train")
    on.load_state_dict(state)
    assert epoch_of(on, epoch) + epoch_of(on, epoch + 1) == steps[7:]


@pytest.mark.parametrize("workers", [0, 2])
def test_texts_are_drawn_anew_in_each_pass(corpora, workers):
    source = mixture_of(corpora, "clean", "back", epoch_steps=5)
    data = data_of(corpora, source, subword_sampling=0.5, num_workers=workers)
    steps = steps_of(data, epochs=range(30))
    assert pickle.dumps(data.split("train"))  # for workers that are not forked
    seen = {text: set() for text in texts_of(data, steps[0])}
    for batch in [batch for step in steps for batch in step]:
        for ids, text in zip(batch, data.tokenizer.decode_target(batch), strict=True):
            seen.get(text, set()).add(str(ids).rstrip("0, ]"))
    assert np.median([*map(len, seen.values())]) > 3  # the longest may not grow
    assert steps == steps_of(data_of(corpora, source, subword_sampling=0.5), epochs=range(30))


@pytest.mark.parametrize(
    "change", [{"weights": {"clean": 3, "back": 1}}, {"until": "3 passes of back"}, "epoch_steps"]
)
def test_a_loader_of_other_stages_does_not_go_on(corpora, data, change):
    data.rank_batches = 4
    loader = data.loader("train")
    for _ in zip(range(2), loader, strict=False):
        state = loader.state_dict()
    stages = STAGES if isinstance(change, str) else [{**STAGES[0], **change}, STAGES[1]]
    more = {"epoch_steps": 9} if isinstance(change, str) else {}
    source = mixture_of(corpora, "clean", "back", "lines", stages=stages, **more)
    other = data_of(corpora, source)
    other.rank_batches = 4
    with pytest.raises(UserError, match="cannot resume after step 2 of the epoch"):
        other.loader("train").load_state_dict(state)


def test_shards_are_a_source_and_give_the_vocabulary(corpora, tmp_path):
    of_extra("shards")
    from tests.extras.shards.small_shards import PAIRS, prepare

    made = prepare(tmp_path)
    shards = of_extra("shards.source").Shards(str(made.path), window=3)
    stages = [{"weights": {"shards": 3, "clean": 1}}]
    source = Mixture({"clean": source_of(corpora, "clean"), "shards": shards}, stages, val="clean")
    data = data_of(corpora, source, max_tokens=120, max_length=60)
    assert data.tokenizer.fingerprint == shards.tokenizer.fingerprint
    steps, sampler = steps_of(data), data.loader("train").batches
    of_shards = [n == 1 for n in sampler.schedule.sources(0, len(steps))]
    size = sampler.sizes["shards"]
    read = [step for mine, step in zip(of_shards, steps, strict=True) if mine][:size]
    assert sorted(text for step in read for text in texts_of(data, step)) == sorted(
        source for source, _ in PAIRS
    )


def test_val_is_read_from_named_sources_or_all_that_have_it(corpora):
    mixture = mixture_of(corpora, "clean", "back")
    assert len(mixture.load("val")) == 6
    assert mixture.origin("val").startswith("clean (")
    held = Mixture(
        {"clean": source_of(corpora, "clean"), "back": source_of(corpora, "back", hold_out=5)}
    )
    assert len(held.load("val")) == 6 + 5
    assert len(Mixture(held.sources, val="back").load("val")) == 5
    only = Mixture(held.sources, val="back")
    only.load("val")
    assert only.parts["val"][1] == 60  # files that go along with it may have a line for all
    with pytest.raises(UserError, match=r"^data\.sources\.back: the val split requires val\.en"):
        mixture_of(corpora, "clean", "back", val="back").load("val")
    with pytest.raises(UserError, match=r"or read it from another source by data\.val=NAME"):
        mixture_of(corpora, "back").load("val")


def test_a_source_without_weight_is_not_trained_on(corpora):
    mixture = mixture_of(corpora, "clean", "back", stages=[{"weights": {"back": 1, "clean": 0}}])
    assert [*mixture.sources] == ["back"]
    assert len(mixture.load("train")) == 60
    assert len(mixture.load("test")) == 5


def test_the_vocabulary_reads_copies_once(corpora):
    copies = {"one": source_of(corpora, "clean"), "two": source_of(corpora, "clean")}
    assert len(Mixture(copies).load("train")) == 40
    assert len(mixture_of(corpora, "clean", "back").load("train")) == 100


STAGE = 'must be such as "1000 steps" or "2 passes of NAME", got '
WEIGHTS = (
    "data.stages[0].weights must be numbers by the names of sources, not negative and not all 0, "
    "got "
)


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        ([{"weights": {"clean": 0, "back": 0}}], f"{WEIGHTS}{{'clean': 0, 'back': 0}}"),
        ([{"weights": {}}], f"{WEIGHTS}{{}}"),
        ([{"weights": {"clean": -1, "back": 2}}], f"{WEIGHTS}{{'clean': -1, 'back': 2}}"),
        ([{"weights": {"clean": float("nan")}}], f"{WEIGHTS}{{'clean': nan}}"),
        ([{"weights": {"clean": True}}], f"{WEIGHTS}{{'clean': True}}"),
        ([{"weights": 3}], f"{WEIGHTS}3"),
        (
            [{"weights": {"cleam": 1}}],
            "data.stages[0].weights names 'cleam'; data.sources has back, clean",
        ),
        (["clean"], "data.stages[0] must have the keys weights and until, got 'clean'"),
        (
            [{"weight": {"clean": 1}}],
            "data.stages[0] must have the keys weights and until, got {'weight': {'clean': 1}}",
        ),
        (
            [{"weights": {"clean": 1}}, {"weights": {"back": 1}}],
            "data.stages[0].until is missing: only the last stage may have no end",
        ),
        ([{"until": 5}], f"data.stages[0].until {STAGE}5"),
        ([{"until": "0 steps"}], f"data.stages[0].until {STAGE}'0 steps'"),
        ([{"until": "1.5 steps"}], f"data.stages[0].until {STAGE}'1.5 steps'"),
        (
            [{"until": "1.5.2 passes of back"}],
            f"data.stages[0].until {STAGE}'1.5.2 passes of back'",
        ),
        (
            [{"until": "2 passes of bakc"}],
            "data.stages[0].until names 'bakc'; data.sources has back, clean",
        ),
        (
            [{"weights": {"clean": 1}, "until": "2 passes of back"}],
            "data.stages[0].until waits for back, which has no weight in it",
        ),
    ],
)
def test_stages_that_are_not_valid_are_refused_in_a_line(corpora, stages, line):
    with pytest.raises(UserError) as caught:
        mixture_of(corpora, "clean", "back", stages=stages)
    assert str(caught.value) == line


def words_of(corpora, *names, choice="parallel_text"):
    yield "data=mixture"
    for name in names:
        keys = {"root": corpora / name, "source_suffix": "en", "target_suffix": "de"}
        yield f"data@data.sources.{name}={choice}"
        yield from (f"data.sources.{name}.{key}={value}" for key, value in keys.items())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["data=mixture"],
            "data.sources is empty; add data@data.sources.NAME=CHOICE and its keys, such as "
            "data@data.sources.clean=parallel_text data.sources.clean.root=DIR",
        ),
        (
            ["data=mixture", "data@data.sources.one=squad", "data.sources.one.root=x"],
            "data.sources.one must be a source of pairs, got Squad",
        ),
        (
            ["data=mixture", "data.sources={one:{root:x}}"],
            "data.sources.one must be a source of pairs, got {'root': 'x'}",
        ),
        (
            ["data=mixture", "data@data.sources.one=demo_translation", "data.val=two"],
            "data.val names 'two'; data.sources has one",
        ),
        (
            ["data=mixture", "data@data.sources.one=demo_translation", "data.sources.one.rot=x"],
            "unknown key data.sources.one.rot; choose from data.sources.one.alignments",
        ),
    ],
)
def test_sources_that_are_not_valid_are_refused_in_a_line(capfd, tmp_path, words, line):
    said = refusal(capfd, "train", *words, f"run_dir={tmp_path}/run")
    assert said == line


@pytest.mark.parametrize(
    ("rows", "keys", "line"),
    [
        ([{"a": "x", "b": "y"}], {"source_column": "c", "target_column": "b"},
         "FILE has no column 'c', only a, b"),
        ([{"a": "x", "b": "y"}], {"source_column": "a"},
         "it has no targets; set its target_column or target_suffix"),
        ([{"a": "", "b": "y"}] * 3, {"source_column": "a", "target_column": "b"},
         "the train split has no usable pairs: dropped 3 of 3 train pairs: 0 longer than 40 "
         "tokens, 3 with an empty side; use pairs with text on both sides"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_read_is_named(corpora, tmp_path, rows, keys, line):
    file = json_lines(tmp_path / "train.jsonl", rows)
    source = Mixture(
        {"clean": source_of(corpora, "clean"), "table": Table({"train": file}, **keys)}
    )
    with pytest.raises(UserError) as caught:
        data_of(corpora, source)
    assert str(caught.value) == f"data.sources.table: {line.replace('FILE', file)}"


def test_splits_of_different_columns_are_not_joined(corpora, tmp_path):
    file = json_lines(tmp_path / "val.jsonl", [{"a": "x", "b": "y", "c": ["y", "z"]}])
    table = Table({"val": file}, None, None, "a", "b", "c")
    source = Mixture({"clean": source_of(corpora, "clean"), "table": table})
    with pytest.raises(UserError) as caught:
        source.load("val")
    assert str(caught.value) == (
        "only some of the sources of val have references; choose those of one kind by data.val=NAME"
    )


def test_errors_name_the_source(capfd, corpora, tmp_path):
    words = ["data.sources.back.source_suffix=fr", f"run_dir={tmp_path}/run"]
    said = refusal(capfd, "train", *train_arguments(corpora, *words_of(corpora, "back"), *words))
    assert said.startswith("data.sources.back: the train split requires train.fr in ")


def test_a_run_reads_its_stages_and_its_bundle_finds_the_sources(capfd, corpora, tmp_path):
    stages = "[{weights:{clean:2,back:1},until:6 steps},{weights:{back:1}}]"
    words = [*words_of(corpora, "clean", "back"), f"data.stages={stages}", "data.epoch_steps=5"]
    ended = run(capfd, "train", *train_arguments(corpora, *words, f"run_dir={tmp_path}", steps=8))
    assert ended.code == 0, ended.err
    told = "stage 1 to step 6: back 0.333, clean 0.667; stage 2: back 1"
    assert f"epochs of 5 steps: {told}\n" in ended.err
    assert "passes" in ended.out
    assert place(checkpoint(tmp_path))[:3] == [8, 1, 3]
    ended = run(capfd, "evaluate", f"bundle={tmp_path}/model", f"output={tmp_path}/scores")
    assert ended.code == 0, ended.err
    assert f"scored 5 rows of clean ({corpora}/clean/test.en" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize("stop", [5, 9])
def test_a_run_that_stops_within_a_stage_goes_on_to_the_bit(corpora, tmp_path, stop):
    stages = "[{weights:{clean:2,back:1},until:7 steps},{weights:{clean:1,lines:3}}]"
    words = [*words_of(corpora, "clean", "back", "lines"), "data.sources.lines.documents=lines"]
    words += [f"data.stages={stages}", "data.epoch_steps=4", "tokenizer=documents"]
    words += ["model.dropout=0.3", "checkpoint.average=last", "loader.max_length=40"]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    train(train_arguments(corpora, *words, f"run_dir={whole}", steps=12, every=3))
    train(train_arguments(corpora, *words, f"run_dir={parted}", steps=stop, every=3))
    train([f"resume={parted}", "trainer.max_steps=12"])
    mine, theirs = checkpoint(parted), checkpoint(whole)
    assert place(mine) == place(theirs)
    for part in ("state_dict", "optimizer_states"):
        assert str(mine[part]) == str(theirs[part])
    one, other = (load_file(end / "model" / "model.safetensors") for end in (whole, parted))
    assert all(torch.equal(one[name], other[name]) for name in one)


OPUSTRAINER = """
datasets:
  original: original.tsv.gz
  backtranslated: [back.tsv, more.tsv]
stages: [start, end]
start:
  - original 0.6
  - backtranslated 0.4
  - until backtranslated 2
end:
  mix:
    - original 1.0
    - backtranslated 0
    - until original inf
seed: 1111
num_fields: 3
trainer: [marian, -c, config.yml]
"""


@pytest.fixture(scope="module")
def trainer_file(tmp_path_factory):
    """A file of OpusTrainer, and its data: lines with links, some without or with an empty text."""
    folder, rows = tmp_path_factory.mktemp("opustrainer"), [*pairs()]
    lines = [f"{one}\t{two}\t0-0 1-1\n" for one, two in rows[:40]]
    with gzip.open(folder / "original.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines([*lines, "a\tb\n", "\tb\t0-0\n"])
    lines = [f"{one}\t{two}\t0-0\tmore\n" for one, two in rows[30:]]
    (folder / "back.tsv").write_text("".join(lines[:10]), encoding="utf-8")
    (folder / "more.tsv").write_text("".join(lines[10:]), encoding="utf-8")
    (folder / "train.yml").write_text(OPUSTRAINER)
    return folder / "train.yml"


def test_files_of_opustrainer_are_read(corpora, trainer_file):
    mixture = Mixture(
        {"dev": source_of(corpora, "clean")}, val="dev", opustrainer=str(trainer_file)
    )
    assert mixture.stages == [
        Stage({"original": 0.6, "backtranslated": 0.4}, 2, "backtranslated"),
        Stage({"original": 1.0, "backtranslated": 0.0}),
    ]
    tables = {name: one.load("train") for name, one in mixture.sources.items()}
    assert {name: len(table) for name, table in tables.items()} == {
        "original": 40,
        "backtranslated": 30,
    }
    assert {*tables["backtranslated"]["links"]} == {"0-0"}
    assert mixture.notices() == [
        f"data.opustrainer={trainer_file}: seed and trainer not read, as this run has its own",
        f"2 of 42 lines of {trainer_file.parent}/original.tsv.gz have fewer than 3 columns, or an "
        "empty one",
    ]
    assert len(mixture.load("val")) == 6


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("seed: 1111", "sead: 1", "unknown key 'sead'; remove it"),
        ("num_fields: 3", "num_fields: 4", "num_fields must be 2 or 3, got 4"),
        ("stages: [start, end]", "stages: start", "stages must be a list of names, got 'start'"),
        ("stages: [start, end]", "stages: [start, mid, end]",
         "mid must be lines such as 'clean 0.8', and 'until clean 2' at the end, got None"),
        ("  - until backtranslated 2", "", "start must be lines such as 'clean 0.8', and 'until "
         "clean 2' at the end, got ['original 0.6', 'backtranslated 0.4']"),
        ("original 0.6", "original x", "start: a weight or the end is not a number, got "
         "['original x', 'backtranslated 0.4', 'until backtranslated 2']"),
        ("datasets:\n  original: original.tsv.gz", "datasets:\n  original: 3",
         "datasets.original must be a file, got [3]"),
        ("stages: [start, end]", "", "stages must be a list of names, got None"),
        ("datasets:", "data:", "must have the keys datasets and stages"),
        ("seed: 1111", "modifiers:\n- UpperCase: 0.05\n- [Tags: 0.005]\n- Typos: 0.1",
         "modifiers are those of noise here; remove them, and add noise=[upper,tags,typos] "
         "noise.upper=0.05 noise.tags=0.005 noise.typos=0.1"),
        ("seed: 1111", "modifiers:\n- Merge: 0.1", "the modifier Merge is not supported"),
        ("  mix:", "  modifiers:\n  - UpperCase: 0\n  mix:", "end has modifiers of its own, which "
         "are not supported"),
    ],
)  # fmt: skip
def test_what_is_not_read_of_opustrainer_is_refused_by_name(trainer_file, before, after, line):
    file = trainer_file.with_name("other.yml")
    assert before in OPUSTRAINER
    file.write_text(OPUSTRAINER.replace(before, after, 1))
    with pytest.raises(UserError) as caught:
        Mixture({}, opustrainer=str(file))
    separator = " " if line.startswith("must") else ": "
    assert str(caught.value) == f"data.opustrainer={file}{separator}{line}"


def test_other_ends_of_opustrainer_are_refused_as_those_of_stages(trainer_file):
    file = trainer_file.with_name("inf.yml")
    file.write_text(OPUSTRAINER.replace("until backtranslated 2", "until backtranslated inf"))
    with pytest.raises(UserError, match="start has no end, but is not the last stage"):
        Mixture({}, opustrainer=str(file))


@pytest.mark.slow
def test_links_of_a_third_column_guide_their_sources(capfd, corpora, trainer_file, tmp_path):
    of_extra("align")
    words = [*words_of(corpora, "clean"), "data.val=clean", f"data.opustrainer={trainer_file}"]
    words += ["task.alignment.links=true", "trainer.log_every_n_steps=1", f"run_dir={tmp_path}"]
    train(train_arguments(corpora, *words, "tokenizer.vocab_size=50", steps=6))
    rows = [row for row in logged(tmp_path) if row["train/loss"]]
    assert len(rows) == 6
    assert all(row["train/alignment"] for row in rows)


@pytest.mark.slow
def test_sources_without_links_are_not_supervised(capfd, corpora, tmp_path):
    of_extra("align")
    (tmp_path / "links").write_text("0-0 1-1\n" * 40)
    words = [*words_of(corpora, "clean", "back"), f"run_dir={tmp_path}/run", "data.epoch_steps=6"]
    words += ["trainer.log_every_n_steps=1", f"task.alignment.links={{clean:{tmp_path}/links}}"]
    train(train_arguments(corpora, *words, steps=6))
    values = [row["train/alignment"] for row in logged(tmp_path / "run") if row["train/loss"]]
    assert 1 < len({*values}) < 6  # of the last guided step


def test_only_the_batches_of_sources_with_links_have_some(corpora, tmp_path):
    guided = of_extra("align.guided_data")
    (tmp_path / "links").write_text("0-0 1-1\n" * 40)
    parts = {name: {"links": {"train": (name, None)}} for name in ("back", "clean")}
    parts["clean"]["links"]["train"] = "clean", str(tmp_path / "links")
    source, options = mixture_of(corpora, "clean", "back"), LoaderOptions(100, max_length=40)
    data = guided.LinkedData(source, CONFIG, options, str(corpora / "cache"), links={}, parts=parts)
    data.load()
    for [batch] in data.loader("train"):
        texts = data.tokenizer.decode_target(batch.source.tolist())
        linked = isinstance(batch, guided.LinkedBatch)
        assert linked == (not texts[0].startswith("so "))
        assert not linked or batch.links.any(2).any(1).all()


@pytest.mark.parametrize("world", [1, 2])
def test_noise_is_drawn_anew_in_each_pass_over_a_source(corpora, world):
    noise = of_extra("noise.noise").Noise(upper=0.3, typos=0.2)
    source, loader = mixture_of(corpora, "clean", "back", epoch_steps=3), LoaderOptions(300)
    parts = join_of(source, CONFIG, loader, noise, 3)
    data = Seq2SeqData(source, CONFIG, loader, str(corpora / "cache"), 3, **parts)
    data.load()
    steps = steps_of(data, epochs=range(8), rank=world - 1, world=world)
    sampler = data.loader("train").batches
    drawn = [[*sampler.sizes][n] for n in sampler.schedule.sources(0, 24)]
    texts = [
        texts_of(data, step) for name, step in zip(drawn, steps, strict=True) if name == "back"
    ]
    lines = [text.lower() for step in texts for text in step]
    assert len({*lines}) > 70  # sixty, and those with typos
    fresh = Seq2SeqData(source, CONFIG, loader, str(corpora / "cache"), 3, **parts)
    fresh.load()
    assert steps_of(fresh, epochs=(5, 6, 7), rank=world - 1, world=world) == steps[15:]
