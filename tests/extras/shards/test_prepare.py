"""From a corpus to shards, from shards to a bundle, its scores, and on from there."""

import json
import shutil

import pytest
import yaml
from safetensors.torch import load_file

from seqattn.extras.shards.shard_files import read_manifest
from tests.cli.small import SIZES, data_of, pairs, refusal, run, succeed, train, write_split

OWN = [word for word in SIZES if not word.startswith(("tokenizer.", "loader.max_tokens"))]
FEW = ["shard_pairs=20", "workers=1", "tokenizer.vocab_size=60"]


@pytest.fixture(scope="module")
def prepared(corpus):
    """Three shards of twenty pairs each, with the corpus' validation and test texts."""
    from seqattn.cli.main import run_subcommand

    home = corpus.parent / "shards"
    assert run_subcommand("prepare", [*data_of(corpus), *FEW, f"output={home}"]) == 0
    return home


def words_for(prepared, run_dir, *more, steps=8):
    """A training from shards, several epochs long, a window for each shard."""
    return [
        *OWN, "data=shards", f"data.root={prepared}", "data.window=1", "loader.max_tokens=160",
        f"run_dir={run_dir}", f"cache_dir={prepared.parent}/cache", "trainer.max_epochs=-1",
        f"trainer.max_steps={steps}", "trainer.val_check_interval=2", "model.dropout=0.2", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run_of_shards(prepared):
    home = prepared.parent / "run_of_shards"
    train(words_for(prepared, home))
    return home


def weights(run_dir):
    return load_file(run_dir / "model" / "model.safetensors")


def same(one, other):
    return all((one[name] == other[name]).all() for name in one.keys() | other.keys())


def test_a_run_from_shards_scores_and_writes_a_bundle_of_their_vocabulary(
    capfd, corpus, prepared, run_of_shards, tmp_path
):
    bundle = f"bundle={run_of_shards}/model"
    assert (run_of_shards / "samples").is_dir()
    scores = json.loads((run_of_shards / "model" / "scores.json").read_text())
    assert "val/bleu" in scores
    config = yaml.safe_load((run_of_shards / "model" / "config.yaml").read_text())
    assert config["data"]["root"] == "???"
    assert config["tokenizer"]["vocab_size"] == 60
    out = succeed(capfd, "evaluate", bundle, f"output={tmp_path}/shards")
    assert "of 5 rows" in out or "scored 5 rows" in out
    succeed(capfd, "evaluate", bundle, *data_of(corpus), f"output={tmp_path}/lines")
    of_shards, of_lines = (tmp_path / x / "hypotheses.txt" for x in ("shards", "lines"))
    assert of_shards.read_text() == of_lines.read_text()
    text = refusal(capfd, "evaluate", bundle, "split=train")
    assert "training data is stored as ids" in text


def test_workers_train_the_same(prepared, run_of_shards, tmp_path):
    train(words_for(prepared, tmp_path / "run", "loader.num_workers=2"))
    assert same(weights(tmp_path / "run"), weights(run_of_shards))


@pytest.mark.parametrize("steps", [pytest.param(2, marks=pytest.mark.exhaustive), 4])
def test_a_run_that_stops_within_an_epoch_goes_on_as_if_it_had_not(
    prepared, run_of_shards, tmp_path, steps
):
    train(words_for(prepared, tmp_path / "run", steps=steps))
    train([f"resume={tmp_path}/run", "trainer.max_steps=8"])
    assert same(weights(tmp_path / "run"), weights(run_of_shards))


def test_several_directories_are_mixed(capfd, corpus, prepared, run_of_shards, tmp_path):
    write_split(corpus.parent / "more", "train", [(f"{a} {a}", f"{b} {b}") for a, b in pairs()])
    words = ["shard_pairs=20", "workers=1", f"vocabulary={prepared}", "hold_out=5"]
    more = tmp_path / "more"
    succeed(capfd, "prepare", *data_of(corpus.parent / "more"), *words, f"output={more}")
    both = [f"data.root=[{prepared},{more}]", "data.temperature=5"]
    train([*words_for(prepared, tmp_path / "run"), *both])
    config = yaml.safe_load((tmp_path / "run" / "model" / "config.yaml").read_text())
    assert config["data"]["root"] == "???"
    succeed(capfd, "evaluate", f"bundle={tmp_path}/run/model", "split=val")


def test_a_bundle_is_trained_further_on_shards_of_its_vocabulary(
    capfd, corpus, prepared, run_of_shards, trained, tmp_path
):
    start = [f"init_from={run_of_shards}/model"]
    train(words_for(prepared, tmp_path / "run", *start, steps=2))
    words = [*data_of(corpus), "hold_out=5", "workers=1", f"vocabulary={run_of_shards}/model"]
    succeed(capfd, "prepare", *words, f"output={tmp_path}/again")
    manifests = [
        json.loads((x / "manifest.json").read_text()) for x in (prepared, tmp_path / "again")
    ]
    assert manifests[0]["fingerprint"] == manifests[1]["fingerprint"]
    other = succeed(
        capfd, "prepare", *data_of(corpus), "hold_out=5", "workers=1", "tokenizer=bpe",
        "tokenizer.vocab_size=55", f"output={tmp_path}/other",
    )  # fmt: skip
    assert "held out" not in other
    words = words_for(tmp_path / "other", tmp_path / "refused", *start)
    assert "prepare them with vocabulary=RUN/model" in refusal(capfd, "train", *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tokenizer=bpe"], "; remove tokenizer=bpe, or prepare it again"),
        (["tokenizer.vocab_size=50"], "tokenizer.vocab_size=60"),
        (["loader.subword_sampling=0.1"], "remove loader.subword_sampling"),
        (["data.weights=[1,2]"], "data.weights must have one weight per directory (1), got 2"),
        (["data.window=0"], "data.window must be a whole number from 1"),
        (["data.root=gone"], "data.root=gone is not a prepared corpus: manifest.json is missing"),
        (
            ["task=qa_generative", "data=shards", "loader.max_tokens=400"],
            "task=qa_generative does not support data=shards",
        ),
    ],
)
def test_what_cannot_be_trained_from_shards_is_refused(capfd, prepared, tmp_path, words, told):
    assert told in refusal(capfd, "train", *words_for(prepared, tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


def test_questions_are_not_prepared(capfd, tmp_path):
    told = refusal(capfd, "prepare", "data=demo_qa", f"output={tmp_path}/out")
    assert told == "prepare supports only text pairs; train on questions directly"
    assert not (tmp_path / "out").exists()


def test_documents_are_not_prepared(capfd, corpus, tmp_path):
    words = (*data_of(corpus), "data.documents=lines", f"output={tmp_path}/out")
    told = refusal(capfd, "prepare", *words)
    assert told == "prepare shuffles pairs, so that documents end; remove data.documents"
    assert not (tmp_path / "out").exists()


def test_a_test_split_that_cannot_be_read_is_left_out_in_words(capfd, corpus, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(corpus, copied)
    (copied / "test.de").write_text("eine Zeile\n", encoding="utf-8")
    ended = run(capfd, "prepare", *data_of(copied), *FEW, f"output={tmp_path}/out")
    assert ended.code == 0
    assert "no test split: source and target must have the same" in ended.err
    assert list(read_manifest(tmp_path / "out").splits) == ["val"]


def test_what_is_unfinished_is_not_trained_on(capfd, prepared, tmp_path):
    (tmp_path / "shards" / "unfinished").mkdir(parents=True)
    told = refusal(capfd, "train", *words_for(tmp_path / "shards", tmp_path / "run"))
    assert "is unfinished; rerun the same seqattn prepare command" in told
