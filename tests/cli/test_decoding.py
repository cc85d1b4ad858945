"""Ensembles, tuning, reranking and corpora of a model's own, from the command line."""

import json
import shutil

import pytest
import yaml

import seqattn
from seqattn.subcommands.bundle_run import BundleRun
from tests.cli.small import data_of, json_lines, refusal, run, succeed, train_arguments


def hypotheses(folder):
    return (folder / "hypotheses.txt").read_text()


def test_an_ensemble_of_one_model_twice_is_the_model(capfd, trained, corpus, tmp_path):
    bundle, pair = f"bundle={trained}/model", f"ensemble=[{trained}/model]"
    succeed(capfd, "evaluate", bundle, f"output={tmp_path}/one")
    out = succeed(capfd, "evaluate", bundle, pair, f"output={tmp_path}/two")
    assert hypotheses(tmp_path / "one") == hypotheses(tmp_path / "two")
    assert json.loads((tmp_path / "two" / "scores.json").read_text())["ensemble"] == [
        f"{trained}/model"
    ]
    assert " + " in out
    words = ("text=a dog", "format=jsonl", "n_best=2")
    one, two = (
        json_lines(succeed(capfd, "generate", bundle, *words, *more)) for more in ((), (pair,))
    )
    assert [row["output"] for row in one] == [row["output"] for row in two]
    assert one[0]["score"] == pytest.approx(two[0]["score"], abs=1e-5)


def test_tuning_writes_a_search_that_other_commands_take_and_stores_it(
    capfd, trained, corpus, tmp_path
):
    shutil.copytree(trained / "model", tmp_path / "model")
    bundle, output = f"bundle={tmp_path}/model", f"output={tmp_path}/tuned"
    data = data_of(corpus)
    grid = ("tune.beam_size=[3]", "tune.limit.extra=[2]", "split=val")
    out = succeed(capfd, "evaluate", bundle, *data, *grid, output, "store=true")
    assert "best: generation.beam_size=3 generation.limit.extra=2" in out
    (trial,) = json.loads((tmp_path / "tuned" / "tuning.json").read_text())["trials"]
    typed = ("generation.beam_size=3", "generation.limit.extra=2")
    former = f"bundle={trained}/model"
    own = ("--config-dir", f"{tmp_path}/tuned", "generation=tuned")
    for number, words in enumerate(((former, *typed), (former, *own), (bundle,))):
        succeed(capfd, "evaluate", *words, *data, "split=val", f"output={tmp_path}/{number}")
        scores = json.loads((tmp_path / str(number) / "scores.json").read_text())
        assert scores["generation"]["beam_size"] == 3
        assert scores["generation"]["limit"]["extra"] == 2
        assert scores["scores"]["BLEU"]["value"] == trial["scores"]["BLEU"]["value"]
        assert hypotheses(tmp_path / str(number)) == hypotheses(tmp_path / "0")
    before, after = seqattn.load(trained / "model"), seqattn.load(tmp_path / "model")
    assert {key for key in before.config if before.config[key] != after.config[key]} == {
        "generation"
    }


def test_an_evaluation_names_its_bundle_for_those_who_read_it_from_another_folder(
    capfd, trained, corpus, tmp_path, monkeypatch
):
    monkeypatch.chdir(trained)
    words = (*data_of(corpus), "split=val", f"output={tmp_path}/found", "generation=greedy")
    succeed(capfd, "evaluate", "bundle=model", *words)
    kept = json.loads((tmp_path / "found" / "scores.json").read_text())["bundle"]
    assert kept == f"{trained}/model"


@pytest.mark.parametrize("words", [("evaluate",), ("convert", "quantize=int8")])
def test_a_folder_that_cannot_be_made_is_refused_before_any_work(
    capfd, trained, monkeypatch, words
):
    monkeypatch.setattr(BundleRun, "load", None)
    said = refusal(capfd, *words, f"bundle={trained}/model", "output=/proc/none/made")
    assert said.startswith("cannot write /proc/none")


def test_one_output_is_asked_of_any_search(capfd, trained):
    words = (f"bundle={trained}/model", "text=a dog", "generation=greedy")
    plain = succeed(capfd, "generate", *words)
    assert succeed(capfd, "generate", *words, "n_best=1") == plain


def test_generate_ranks_by_the_other_model_too(capfd, trained):
    bundle, other = f"bundle={trained}/model", f"rerank.bundle={trained}/model"
    words = ("text=a dog sees a ball .", "n_best=2", "format=jsonl")
    plain = json_lines(succeed(capfd, "generate", bundle, *words))
    for weight in (0, 3):
        given = (other, f"rerank.weight={weight}")
        ranked = json_lines(succeed(capfd, "generate", bundle, *words, *given))
        assert {row["output"] for row in ranked} == {row["output"] for row in plain}
        assert (ranked[0]["score"] == plain[0]["score"]) == (weight == 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("subcommand", ["distil", "backtranslate"])
def test_a_corpus_that_a_model_wrote_is_trained_on_as_it_is(
    capfd, trained, corpus, tmp_path, subcommand
):
    own = {
        "distil": ("originals=1",),
        "backtranslate": (f"input={corpus}/val.en", "tag=BT"),
    }[subcommand]
    out = succeed(capfd, subcommand, f"bundle={trained}/model", f"output={tmp_path}/made", *own)
    name = {"distil": "distilled", "backtranslate": "backtranslated"}[subcommand]
    assert f"--config-dir {tmp_path}/made data={name}" in out
    words = train_arguments(corpus, f"data={name}", f"run_dir={tmp_path}/run")
    succeed(capfd, "train", "--config-dir", f"{tmp_path}/made", *words)
    kept = yaml.safe_load((tmp_path / "run" / "model" / "config.yaml").read_text())
    assert kept["data"]["_type_"] == "Table"
    assert "scored 5 rows" in succeed(capfd, "evaluate", f"bundle={tmp_path}/run/model")


def test_an_ensemble_of_other_kinds_is_refused(capfd, trained, answering):
    ended = run(capfd, "evaluate", f"bundle={trained}/model", f"ensemble=[{answering}/model]")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert (
        f"an ensemble needs a bundle that outputs text, but {answering}/model outputs spans"
        in ended.err
    )


@pytest.mark.parametrize(
    ("use", "words"),
    [("lengths", "=[3]"), ("tune", ".answers=[1,2]"), ("rerank", ".bundle=R/model")],
)
def test_what_is_for_texts_alone_is_refused_of_spans(capfd, answering, use, words):
    said = refusal(capfd, "evaluate", f"bundle={answering}/model", "split=val", use + words)
    assert said.startswith(f"{use} needs a bundle that outputs text, but ")


def test_the_lines_of_a_text_are_generated_apart(capfd, trained, tmp_path):
    """The model read one line of single lines, and lost what stood after it."""
    bundle, loaded = f"bundle={trained}/model", seqattn.load(trained / "model")
    one, two = (loaded.generate(text) for text in ("a dog sees the cat .", "the child"))
    text = "\na dog sees the cat .\n\nthe child"
    assert succeed(capfd, "generate", bundle, f"text={text}") == f"\n{one}\n\n{two}\n"
    rows = [{"source": text}, {"source": "the child"}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = (bundle, f"input={tmp_path}/texts.jsonl")
    assert succeed(capfd, "generate", *read) == f" {one} {two}\n{two}\n"
    found = json_lines(succeed(capfd, "generate", *read, "format=jsonl", "n_best=2"))
    assert [row["line"] for row in found] == [1, 1, 2, 2]
    assert [row["rank"] for row in found] == [1, 2, 1, 2]
    assert found[0]["output"] == f"\n{one}\n\n{two}" != found[1]["output"]
    each = [loaded.hypotheses(line, n_best=2) for line in ("a dog sees the cat .", "the child")]
    for rank in range(2):
        total = sum(one[0][rank].log_probability for one in each)
        assert found[rank]["log_probability"] == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_alignments_are_written_beside_outputs(capfd, trained, tmp_path, kind):
    (tmp_path / "texts").write_text("a dog sees a ball .\n\na ball\n")
    words = (f"bundle={trained}/model", f"input={tmp_path}/texts", "n_best=2", f"format={kind}")
    alone = succeed(capfd, "generate", *words).splitlines()
    both = succeed(capfd, "generate", *words, "alignments=true").splitlines()
    bundle = seqattn.load(trained / "model")
    for line, more in zip(alone, both, strict=True):
        if kind == "tsv":
            *own, links = more.split("\t")
            assert own == line.split("\t")
            source, output = (tmp_path / "texts").read_text().split("\n")[int(own[0]) - 1], own[3]
        else:
            row = json.loads(more)
            links, source, output = row.pop("alignment"), row["source"], row["output"]
            assert row == json.loads(line)
        assert links == bundle.align(source, output)[0].pharaoh()
