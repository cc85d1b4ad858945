"""The commands, from text to a bundle to text again."""

import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from safetensors.torch import load_file

import seqattn
from scripts.demo import is_current
from seqattn.__main__ import main
from seqattn.analysis import capture
from seqattn.attention.heads import MultiHeadAttention
from seqattn.cli.help_page import subcommands
from seqattn.settings.assembly import Architecture
from seqattn.settings.documents import bundle_dir
from tests.cli.fork import start_forked
from tests.cli.small import (
    checkpoint,
    composed,
    groups,
    json_lines,
    logged,
    losses_of,
    refusal,
    run,
    succeed,
    train_arguments,
    write_corpus,
)
from tests.training.wandb_files import read

ROOT = Path(__file__).parents[2]
TEXTS = ["a dog sees a ball .", "the child hears two birds ."]


@pytest.fixture
def bundle(trained):
    return f"bundle={trained / 'model'}"


@pytest.fixture(scope="module")
def loaded(trained):
    return seqattn.load(str(trained / "model"))


def plain_of(node):
    return {key: value for key, value in node.items() if not key.startswith("_")}


def typed(monkeypatch, content):
    """Gives `content` as standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# --- train --------------------------------------------------------------------------------------


def test_a_run_leaves_its_bundle_settings_checkpoints_and_measurements(trained, corpus):
    files = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    files = {re.sub(r"-\w{8}\.ckpt", "-DIGEST.ckpt", name) for name in files}
    files = {name for name in files if not name.startswith("tables/")}  # of tests that looked in
    assert files == {
        "config.yaml",
        "overrides.yaml",
        "result.yaml",
        "checkpoints/step-000002-DIGEST.ckpt",
        "checkpoints/step-000004-DIGEST.ckpt",
        "checkpoints/weights-000002-DIGEST.ckpt",
        "checkpoints/weights-000004-DIGEST.ckpt",
        "csv/version_0/hparams.yaml",
        "csv/version_0/metrics.csv",
        "model/README.md",
        "model/config.yaml",
        "model/joint.model",
        "model/model.safetensors",
        "model/scores.json",
        "model/tokenizer.json",
        "samples/samples.csv",
        "tokenizer/joint.model",
        "tokenizer/tokenizer.json",
        "train.log",
    }
    config = yaml.safe_load((trained / "config.yaml").read_text())
    carried = yaml.safe_load((trained / "model" / "config.yaml").read_text())
    assert carried["format"] == "seqattn bundle 2"
    assert carried["model"] == {"_type_": "TransformerConfig", **plain_of(config["model"])}
    assert (config["model"]["dim"], config["run_dir"]) == (16, str(trained))
    overrides = yaml.safe_load((trained / "overrides.yaml").read_text())
    assert overrides == train_arguments(corpus)


def test_measurements_hold_every_validation_and_every_score_has_a_signature(trained):
    rows = [row for row in logged(trained) if row["val/loss"]]
    assert [row["step"] for row in rows] == ["1", "3"]
    assert all(float(row["val/bleu"]) >= 0 for row in rows)
    scores = json.loads((trained / "model" / "scores.json").read_text())
    assert {"val/loss", "val/perplexity", "val/accuracy", "val/bleu", "val/chrF"} <= scores.keys()
    assert scores["val/bleu signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    assert float(rows[-1]["val/loss"]) == pytest.approx(scores["val/loss"], rel=1e-5)


def test_the_end_of_a_training_says_what_came_of_it_and_is_quiet_elsewhere(
    capfd, corpus, trained, tmp_path
):
    words = train_arguments(corpus, f"run_dir={tmp_path}/run", "trainer.log_every_n_steps=1")
    ended = run(capfd, "train", *words)
    assert ended.code == 0
    columns = {column.removeprefix("train/") for column in logged(tmp_path / "run")[0]}
    assert {"loss", "lr", "gradient_norm", "tokens_per_second"} <= columns
    assert {"padding_share", "waiting_share", "tokens", "seconds_left", "clip_share"} <= columns
    for word in (
        "steps",
        "saved weights",
        "val/bleu",
        "val/chrF",
        "parameters",
        "time",
        "padding",
        "bundle",
    ):
        assert word in ended.out
    assert re.search(
        r"preparing \d+ s · training \d+ s · validating \d+ s · scoring \d+ s", ended.out
    )
    assert "val/loss" in ended.out.partition("steps")[0]  # figures come first
    assert not re.search("nrefs|signature", ended.out)  # which are in the bundle
    assert str(tmp_path / "run" / "model") in ended.out
    opening, first, *rest = ended.err.splitlines()
    assert opening.startswith("training 5,800 parameters on 1 x CPU")
    assert first.startswith(f"kept all 60 train pairs; read from {corpus}/train.en and ")
    assert [re.split(" · val| · train|; read", line)[0] for line in rest] == [
        "kept all 6 val pairs",
        "epoch 1 · step 2",
        "epoch 1 · step 4",
    ]


def test_without_a_run_directory_runs_go_by_name_and_time(capfd, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = train_arguments(corpus, "name=mine", "trainer.fast_dev_run=true")
    for _ in range(2):  # within one second, too
        succeed(capfd, "train", *words)
    assert len(list((tmp_path / "runs" / "mine").iterdir())) == 2
    assert all((path / "model").is_dir() for path in (tmp_path / "runs" / "mine").iterdir())


def kept_weights(run_dir, step):
    [kept] = (run_dir / "checkpoints").glob(f"weights-{step:06d}-*.ckpt")
    return torch.load(kept)["state_dict"]


def test_the_bundle_averages_the_last_checkpoints(capfd, corpus, tmp_path):
    run_dir = tmp_path / "run"
    words = ("checkpoint.average=last", "checkpoint.count=2", f"run_dir={run_dir}")
    words += ("task.validation.every=0",)
    out = succeed(capfd, "train", *train_arguments(corpus, *words, steps=6))
    assert "mean of steps 4, 6" in out
    states = [kept_weights(run_dir, step) for step in (4, 6)]
    weights = load_file(run_dir / "model" / "model.safetensors")
    for name, weight in weights.items():
        wanted = sum(state[f"model.{name}"].double() for state in states) / 2
        assert torch.equal(weight, wanted.float()), name


def test_the_bundle_holds_the_best_checkpoint_where_the_last_is_worse(capfd, corpus, tmp_path):
    run_dir = tmp_path / "run"
    words = ("optimizer.lr=0.5", "schedule.warmup_steps=0", f"run_dir={run_dir}")
    words += ("task.validation.every=0",)  # which is of what is generated
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=6, every=1))
    losses = losses_of(run_dir)
    best = min(losses, key=losses.get)
    state = kept_weights(run_dir, best)
    for name, weight in load_file(run_dir / "model" / "model.safetensors").items():
        assert torch.equal(weight, state[f"model.{name}"])


VARIANTS = {
    "bf16, post-norm, RMSNorm, SwiGLU, checkpointed, loggers": [
        "trainer.precision=bf16-mixed",
        "model.pre_norm=false",
        "model.norm=rmsnorm",
        "model.activation=swiglu",
        "model.checkpoint_activations=true",
        "model.dropout=0.2",
        "logger=[csv,tensorboard]",
    ],
    "widths and vocabularies apart, no generation, no logger": [
        "model.encoder_dim=8",
        "model.share_embeddings=target",
        "tokenizer.joint=false",
        "tokenizer.vocab_size=30",
        "task.validation.every=0",
        "logger=[]",
    ],
    "sampling, bpe, early stopping by BLEU": [
        "generation=sampling",
        "tokenizer=bpe",
        "checkpoint.monitor=val/bleu",
        "checkpoint.patience=2",
    ],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains_and_its_bundle_generates(capfd, corpus, tmp_path, name):
    run_dir = tmp_path / "run"
    words = [word for word in VARIANTS[name] if not word.startswith("generation=")]
    if words != VARIANTS[name]:  # a sampling has no beam
        words += ["generation=sampling"]
    arguments = train_arguments(corpus, *words, f"run_dir={run_dir}", steps=2)
    if "generation=sampling" in words:
        arguments = [word for word in arguments if "beam_size" not in word]
    succeed(capfd, "train", *arguments)
    assert len(seqattn.load(run_dir / "model").generate(TEXTS)) == 2
    assert checkpoint(run_dir)["global_step"] == 2
    if "loggers" in name:
        assert list((run_dir / "tensorboard").rglob("events*"))
        assert (run_dir / "csv" / "version_0" / "metrics.csv").is_file()
    if "no logger" in name:
        assert not (run_dir / "csv").exists()


@pytest.mark.slow
def test_wandb_works_offline_without_an_account(capfd, corpus, tmp_path, monkeypatch):
    import wandb

    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["logger=wandb", "logger.wandb.mode=offline", f"run_dir={tmp_path}/run"]
    words += ["logger.wandb.artifacts=true", "callbacks=[gradients]", "callbacks.gradients.every=2"]
    succeed(capfd, "train", *train_arguments(corpus, *words, draws=True))
    wandb.teardown()
    [file] = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    found = read(file)
    assert {"attention=mha", "task=translation"} <= set(found.tags)
    assert {"torch", "device", "threads"} <= found.config["environment"].keys()
    assert found.config["parameters"] > 1000
    assert found.artifacts["model"] == ["best", "latest"]
    tables = [row["samples/nrows"] for row in found.rows if "samples/nrows" in row]
    assert tables == [3, 4]  # source, reference, and a row for each validation
    logged = {name for row in found.rows for name in row}
    health = "attention/decoder.layers.0.cross_attention/entropy"
    assert {health, "gradients/encoder/bins", "train/loss", "final/val/bleu"} <= logged


# --- attention, slot by slot --------------------------------------------------------------------


def heads_of(*words):
    """The attentions of a model of three layers and two that a training would build."""
    layers = ("model.encoder_layers=3", "model.decoder_layers=2")
    settings, chosen = composed("train", *layers, *words)
    modules = Architecture.of({**settings, "choices": chosen}).check().named_modules()
    return {name: module for name, module in modules if isinstance(module, MultiHeadAttention)}


def kv_heads(*words):
    return {name: module.num_kv_heads for name, module in heads_of(*words).items()}


def test_one_name_fills_every_slot():
    heads = kv_heads("attention=gqa")
    assert set(heads.values()) == {2}
    assert len(heads) == 3 + 2 + 2


def test_a_list_of_names_goes_through_the_layers():
    heads = kv_heads("attention=[mha,gqa]")
    assert [heads[f"encoder.layers.{n}.self_attention"] for n in range(3)] == [4, 2, 4]
    for slot in ("self_attention", "cross_attention"):
        assert [heads[f"decoder.layers.{n}.{slot}"] for n in range(2)] == [4, 2]


def test_slots_are_chosen_apart():
    words = [
        "attention=gqa",
        "attention@cross_attention=mqa",
        "attention@encoder_attention=[mqa,mha]",
        "cross_attention.num_heads=2",
    ]
    heads = kv_heads(*words)
    assert [heads[f"encoder.layers.{n}.self_attention"] for n in range(3)] == [1, 4, 1]
    assert [heads[f"decoder.layers.{n}.self_attention"] for n in range(2)] == [2, 2]
    assert [heads[f"decoder.layers.{n}.cross_attention"] for n in range(2)] == [1, 1]
    whole = heads_of(*words)
    assert whole["decoder.layers.0.cross_attention"].num_heads == 2
    assert whole["decoder.layers.0.self_attention"].num_heads == 4


# --- generate -----------------------------------------------------------------------------------


def test_a_file_is_answered_line_by_line_as_load_generates(capfd, bundle, corpus, loaded, tmp_path):
    source, output = corpus / "test.en", tmp_path / "out.txt"
    texts = source.read_text(encoding="utf-8").splitlines()
    assert succeed(capfd, "generate", bundle, f"input={source}", f"output={output}") == ""
    lines = output.read_text(encoding="utf-8").splitlines()
    assert lines == loaded.generate(texts)
    assert len(lines) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    shown = run(capfd, "generate", bundle, f"input={source}")
    assert (shown.out.splitlines(), shown.err) == (lines, "")


def test_processes_share_out_the_lines_of_a_bundle_of_before_them(
    capfd, trained, corpus, loaded, tmp_path
):
    shutil.copytree(trained / "model", tmp_path / "old")
    config = tmp_path / "old" / "config.yaml"
    before = config.read_text(encoding="utf-8")
    assert "\n  workers: null\n" in before
    config.write_text(before.replace("\n  workers: null\n", "\n"))
    texts = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    shared = ("generation.workers=2", "generation.batch_size=2")
    out = succeed(capfd, "generate", f"bundle={tmp_path}/old", f"input={corpus}/test.en", *shared)
    assert out.splitlines() == loaded.generate(texts)


def test_standard_input_is_answered_at_once(bundle, loaded, tmp_path):
    """Each line is answered before the next is given, by a process of its own."""
    process = start_forked("generate", [bundle], tmp_path)
    for text in (*TEXTS, "", "  "):
        process.typed.write(f"{text}\n")
        process.typed.flush()
        answer = process.out.readline()
        assert answer == (loaded.generate([text])[0] + "\n" if text.strip() else "\n")
    assert process.ended() == (0, "", "")


def test_empty_lines_give_empty_lines(capfd, bundle, loaded, monkeypatch, tmp_path):
    content = f"\n{TEXTS[0]}\n   \n\n{TEXTS[1]}"  # the last without its line break
    answers = loaded.generate(TEXTS)
    wanted = ["", answers[0], "", "", answers[1]]
    typed(monkeypatch, content.encode())
    assert succeed(capfd, "generate", bundle).split("\n")[:-1] == wanted
    (tmp_path / "in.txt").write_text(content)
    out = succeed(capfd, "generate", bundle, f"input={tmp_path}/in.txt")
    assert out.split("\n")[:-1] == wanted
    assert loaded.generate(["", " "]) == ["", ""]
    (tmp_path / "in.txt").write_text("")
    assert succeed(capfd, "generate", bundle, f"input={tmp_path}/in.txt") == ""


def test_pieces_that_the_vocabulary_lacks_are_counted_once(capfd, bundle, tmp_path):
    (tmp_path / "in.txt").write_text(f"{TEXTS[0]}\na 犬 sees 犬 .\n猫 sees\n")
    ended = run(capfd, "generate", bundle, f"input={tmp_path}/in.txt")
    assert "the vocabulary lacks 3 pieces of the input, such as 犬, 猫; the model re" in ended.err
    assert "vocabulary" not in run(capfd, "generate", bundle, f'text="{TEXTS[0]}"').err
    assert "such as U+200E; the" in run(capfd, "generate", bundle, "text=a \u200e dog").err


def test_json_lines_carry_distinct_ranked_hypotheses(capfd, bundle, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join([TEXTS[0], "", TEXTS[1]]))
    words = ("n_best=3", "generation.beam_size=4", "format=jsonl")
    rows = json_lines(succeed(capfd, "generate", bundle, f"input={tmp_path}/in.txt", *words))
    for text in (*TEXTS, ""):
        mine = [row for row in rows if row["source"] == text]
        assert [row["rank"] for row in mine] == list(range(1, len(mine) + 1))
        assert [row["score"] for row in mine] == sorted((r["score"] for r in mine), reverse=True)
        assert len({row["output"] for row in mine}) == len(mine)
        assert len(mine) == (1 if text == "" else 3)
        assert all(row["log_probability"] <= row["score"] <= 0 for row in mine)
    assert [row["line"] for row in rows] == [1, 1, 1, 2, 3, 3, 3]
    read = (bundle, f"input={tmp_path}/in.txt", *words[:2])
    tabbed = [line.split("\t") for line in succeed(capfd, "generate", *read).splitlines()]
    wanted = [(row["line"], row["rank"], row["output"]) for row in rows]
    assert [(int(number), int(rank), said) for number, rank, _, said in tabbed] == wanted
    assert [float(score) for _, _, score, _ in tabbed] == pytest.approx(
        [row["score"] for row in rows], abs=1e-4
    )
    lines = succeed(capfd, "generate", *read, "format=text").splitlines()
    assert lines == [row["output"] for row in rows]
    assert json_lines(succeed(capfd, "generate", *read, "format=jsonl")) == rows


@pytest.mark.parametrize("text", ["a dog sees a ball .", "yes, {he} can: ${x}", ""])
def test_one_text_is_answered(capfd, bundle, loaded, text):
    assert succeed(capfd, "generate", bundle, f"text={text}") == loaded.generate(text) + "\n"


def test_what_is_piped_in_at_once_is_batched_and_answered_as_a_file(
    capfd, bundle, corpus, monkeypatch
):
    from seqattn.generation import Sampling

    batches, search = [], Sampling.search

    def counted(self, model, memory, numbers):
        batches.append(sorted(numbers))
        return search(self, model, memory, numbers)

    monkeypatch.setattr(Sampling, "search", counted)
    words = [bundle, "generation=sampling"]  # whose random numbers are of the place in the input
    from_file = succeed(capfd, "generate", *words, f"input={corpus / 'test.en'}")
    typed(monkeypatch, (corpus / "test.en").read_bytes())
    assert succeed(capfd, "generate", *words) == from_file
    assert batches == [[0, 1, 2, 3, 4]] * 2


def test_the_log_probability_is_the_models_own(capfd, bundle, loaded, tmp_path):
    (tmp_path / "in.txt").write_text(TEXTS[0])
    words = ("generation=greedy", "format=jsonl", f"input={tmp_path}/in.txt")
    [row] = json_lines(succeed(capfd, "generate", bundle, *words))
    generation = composed("generate", bundle, "generation=greedy")[0]["generation"]
    [[hypothesis]] = loaded.generator(generation).generate(loaded.encode([TEXTS[0]])[0])
    assert row["output"] == loaded.tokenizer.decode_target([hypothesis.ids])[0]
    assert row["log_probability"] == pytest.approx(hypothesis.log_probability)


def test_the_bundles_own_search_is_used_and_shown(capfd, bundle, loaded):
    assert loaded.generator().search.beam_size == 2
    shown = yaml.safe_load(succeed(capfd, "generate", "--cfg", "job", bundle))
    assert (shown["bundle"], shown["generation"]["beam_size"]) == (str(loaded.path), 2)


def test_sampling_is_the_seeds(capfd, bundle, corpus):
    words = [bundle, f"input={corpus / 'test.en'}", "generation=sampling"]
    first, again = (succeed(capfd, "generate", *words) for _ in range(2))
    assert first == again
    assert succeed(capfd, "generate", *words, "generation.seed=1") != first


# --- evaluate and analyze -----------------------------------------------------------------------


def test_evaluate_writes_and_shows_sacrebleus_scores(capfd, bundle, corpus, loaded, tmp_path):
    import sacrebleu

    out = succeed(capfd, "evaluate", bundle, f"output={tmp_path}/scores")
    files = {"scores.json", "hypotheses.txt", "sentences.jsonl"}
    assert {p.name for p in (tmp_path / "scores").iterdir()} == files
    read = {
        suffix: (corpus / f"test.{suffix}").read_text(encoding="utf-8").splitlines()
        for suffix in ("en", "de")
    }
    hypotheses = (tmp_path / "scores" / "hypotheses.txt").read_text(encoding="utf-8").splitlines()
    assert hypotheses == loaded.generate(read["en"])
    written = json.loads((tmp_path / "scores" / "scores.json").read_text())
    bleu = sacrebleu.corpus_bleu(hypotheses, [read["de"]], force=True).score
    assert written["scores"]["BLEU"]["value"] == pytest.approx(bleu)
    chrf = sacrebleu.corpus_chrf(hypotheses, [read["de"]]).score
    assert written["scores"]["chrF"]["value"] == pytest.approx(chrf)
    assert (written["split"], written["sentences"], written["rows"]) == ("test", 5, 5)
    assert written["data"] == f"{corpus}/test.en and {corpus}/test.de"
    assert f"scored 5 rows of {corpus}/test.en and {corpus}/test.de" in out
    assert written["sentences_per_second"] > 0 < written["tokens_per_second"]
    for name in ("BLEU", "chrF"):
        assert written["scores"][name]["signature"] in out
    assert str(tmp_path / "scores") in out


def test_evaluate_takes_data_overrides_and_writes_beside_the_bundle(
    capfd, corpus, trained, bundle, tmp_path
):
    other = write_corpus(tmp_path / "other")
    for suffix in ("en", "de"):
        lines = (corpus / f"test.{suffix}").read_text(encoding="utf-8").splitlines()
        (other / f"test.{suffix}").write_text("\n".join(lines[:3]), encoding="utf-8")
    words = (f"data.root={other}", "scorer.tokenize=none", "generation=greedy")
    succeed(capfd, "evaluate", bundle, *words, f"output={tmp_path}/out")
    written = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert written["sentences"] == 3
    assert "tok:none" in written["scores"]["BLEU"]["signature"]
    assert written["generation"]["_target_"].endswith("GreedySearch")
    line = "scorer has no choices; set a key of the bundle's, such as scorer.tokenize=none"
    assert refusal(capfd, "evaluate", bundle, "scorer=ter") == line
    run = shutil.copytree(trained, tmp_path / "run")
    succeed(capfd, "evaluate", f"bundle={run / 'model'}", "split=val")
    beside = run / "evaluation" / "val"
    assert json.loads((beside / "scores.json").read_text())["sentences"] == 6
    before = (beside / "scores.json").read_bytes()
    for changed, suffix in (
        ("generation.beam_size=3", "-generation"),
        ("scorer.tokenize=none", "-scorer"),
        ("generation.batch_size=3", ""),  # changes no output
    ):
        succeed(capfd, "evaluate", f"bundle={run / 'model'}", "split=val", changed)
        assert (run / "evaluation" / f"val{suffix}" / "scores.json").is_file()
        assert suffix == "" or (beside / "scores.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("val-ensemble", "ensemble=[{0}]", "ensemble=[{0},{0}]"),
        ("val-generation", "generation.beam_size=3", "generation.beam_size=1"),
        ("val", "scorer.tokenize=13a", "data.val=test"),
    ],
)
def test_an_evaluation_of_others_replaces_none(capfd, trained, tmp_path, name, first, second):
    bundle = shutil.copytree(trained, tmp_path / "run") / "model"
    for number, words in enumerate((first, second, second, first), 1):
        words = ("split=val", words.format(bundle))
        succeed(capfd, "evaluate", f"bundle={bundle}", *words)
        there = sorted((tmp_path / "run" / "evaluation").iterdir())
        if number == 1:
            before = (there[0] / "scores.json").read_bytes()
        assert [one.name.rpartition("-")[0] for one in there[1:]] == [name] * (number > 1)
        again = json.loads((there[0] / "scores.json").read_text())
        assert there[0].name == name
        assert again["ensemble"] == json.loads(before)["ensemble"]
        assert again["generation"] == json.loads(before)["generation"]
        assert again["data"] == json.loads(before)["data"]


def test_a_bundle_carries_no_local_paths_and_its_run_knows_them(
    capfd, corpus, trained, bundle, tmp_path
):
    for name in ("config.yaml", "scores.json", "README.md"):
        assert str(corpus.parent) not in (trained / "model" / name).read_text()
    alone = f"bundle={shutil.copytree(trained / 'model', tmp_path / 'model')}"
    refused = run(capfd, "evaluate", alone)
    assert refused.err == "error: missing required key: data.root (add data.root=...)\n"
    words = (f"data.root={corpus}", f"output={tmp_path}/scores")
    assert "scored 5 rows" in succeed(capfd, "evaluate", alone, *words)
    other = shutil.copytree(trained, tmp_path / "run")
    settings = yaml.safe_load((other / "config.yaml").read_text())
    settings["data"]["root"] = "${oc.env:HOME}"  # which nobody resolves
    (other / "config.yaml").write_text(yaml.safe_dump(settings))
    assert run(capfd, "evaluate", f"bundle={other}/model").err == refused.err


def test_report_makes_one_file_and_says_where(capfd, bundle, trained, tmp_path):
    page = tmp_path / "new" / "page.html"
    words = (f"bundles=[{trained}/model]", "sentences=2", f"output={page}")
    out = succeed(capfd, "report", bundle, *words)
    assert out.startswith(f"report: {page}   (2 sentences of the val split, ")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count('id="sentence-') == 2
    assert "bleu signature" not in text
    assert '"name":"val/bleu"' in text
    assert '"name":"train/loss"' in text  # of RUN/csv


@pytest.mark.parametrize("target", [None, "ein Hund sieht ."])
def test_analyze_draws_three_pictures(capfd, bundle, loaded, tmp_path, target):
    words = [f"text={TEXTS[0]}", f"output={tmp_path}/pictures"]
    if target:
        words.append(f"target={target}")
    out = succeed(capfd, "analyze", bundle, *words)
    said = target or loaded.generate(TEXTS[:1])[0]
    name = "output" if target is None else "target"
    assert f"source:    {TEXTS[0]}\n{name}:    {said}\n" in out
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [picture.name for picture in pictures] == ["cross.png", "decoder.png", "encoder.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


@pytest.mark.parametrize(
    ("format", "begins"),
    [("svg", b"<?xml"), pytest.param("pdf", b"%PDF", marks=pytest.mark.exhaustive)],
)
def test_analyze_draws_heads_and_other_formats(capfd, bundle, tmp_path, format, begins):
    words = [f"text={TEXTS[0]}", "target=ein Hund", f"output={tmp_path}"]
    succeed(capfd, "analyze", bundle, *words, f"format={format}", "heads=true")
    views = ("cross", "encoder", "decoder")
    names = {f"{view}{part}.{format}" for view in views for part in ("", "_heads_1")}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert all(path.read_bytes().startswith(begins) for path in tmp_path.iterdir())


def test_analyze_names_unknown_words_by_their_text_and_an_empty_output_by_nothing(
    capfd, bundle, tmp_path
):
    words = [bundle, "text=🙂 a dog 中文", f"output={tmp_path}", "format=svg"]
    out = succeed(capfd, "analyze", *words, "target=☃ Hund")
    looked = next(line for line in out.splitlines() if line.startswith("attention: "))
    links = [link.split(" ← ") for link in looked.removeprefix("attention: ").split(", ")]
    assert [said for said, _ in links] == ["☃", "Hund"]
    assert {read for _, read in links} <= {"🙂", "a", "dog", "中文"}
    assert "☃" in (tmp_path / "cross.svg").read_text(encoding="utf-8")
    assert "attention: " not in succeed(capfd, "analyze", *words, "target=")


def test_analyze_shows_the_sentence_that_was_typed(capfd, bundle, tmp_path):
    out = succeed(capfd, "analyze", bundle, "text=${x}", f"output={tmp_path}/p")
    assert out.startswith("source:    ${x}\n")


# --- bundles in Python --------------------------------------------------------------------------


def test_capture_watches_a_loaded_bundle(loaded):
    plain_texts = loaded.generate(TEXTS)
    with capture(loaded.model) as maps:
        assert loaded.generate(TEXTS) == plain_texts
    assert maps["decoder.layers.0.cross_attention"]


# --- help, settings, sweeps ---------------------------------------------------------------------


@pytest.mark.parametrize("subcommand", ["train", "generate", "evaluate"])
def test_a_launcher_shows_a_page_with_examples(capfd, monkeypatch, subcommand):
    script = "train.py" if subcommand == "train" else f"scripts/{subcommand}.py"
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(ROOT / script), run_name="__main__")
    out = capfd.readouterr().out
    assert re.match(rf"usage: python \S*{script} \[key=value ...]\n", out)
    assert "Examples:" in out
    assert max(map(len, out.splitlines())) <= 100
    assert "_target_" not in out
    if subcommand == "evaluate":
        assert "\nscorer=null: keys of the bundle's: tokenize, lowercase" in out
    if subcommand == "train":
        assert "\nname: ${task.name}  # runs go to runs/NAME/TIME\n" in out
        for group, choices in groups().items():
            others = "document_lines document_scores engine importer markup quality terms"
            if group not in [*others.split(), "sentence_splitter", "file_format"]:
                assert f"\n{group}=" in out
                assert all(choice in out for choice in choices)


def test_help_with_a_choice_shows_its_keys_and_choices_of_ones_own(capfd, tmp_path):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text(
        "# An attention of one's own.\nsharpness: 3\n"
    )
    words = ["--config-dir", str(tmp_path), "--help", "attention=mine"]
    out = succeed(capfd, "train", *words)
    assert "attention=mine:\n# An attention of one's own.\nsharpness: 3\n" in out
    assert re.search(r"\nattention=mha: [^=]*\bmha, mine, moa\b", out)


@pytest.mark.parametrize(
    ("subcommand", "choice", "keys"),
    [
        ("train", "attention=gqa", "each head\nkernel:\n  backend: auto"),
        ("train", "cross_attention=additive", "each head\n\n--help"),
        ("train", "experiment=demo", "\ndefaults:\n  - override /data: demo_translation\n"),
        ("generate", "generation=beam", "\nlimit:\n  ratio:"),
    ],
)
def test_help_with_a_choice_shows_what_can_be_set(capfd, subcommand, choice, keys):
    out = succeed(capfd, subcommand, "--help", choice)
    assert f"\n{choice}:\n# " in out
    assert keys in out
    for word in ("_target_", "_partial_", "@package"):
        assert word not in out


@pytest.mark.parametrize(
    ("words", "code"), [(["--help"], 0), (["name=mine"], 2), (["run_dir=a", "seed=2"], 2)]
)
def test_the_demo_takes_a_run_directory_alone(capfd, monkeypatch, words, code):
    monkeypatch.setattr(sys, "argv", ["scripts/demo.py", *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "scripts" / "demo.py"), run_name="__main__")
    assert end.value.code == code
    assert "usage: python scripts/demo.py [run_dir=DIR]" in "".join(capfd.readouterr())


def test_the_demo_is_current_if_it_began_after_its_files_were_written(tmp_path):
    names = ("overrides.yaml", "result.yaml", "model/config.yaml", "corpus")
    words, result, _, corpus = (tmp_path / name for name in names)
    (tmp_path / "model").mkdir()
    for time, name in enumerate(names):
        (tmp_path / name).write_text("- experiment=demo\n", encoding="utf-8")
        os.utime(tmp_path / name, (time, time))
    assert not is_current(tmp_path, [corpus])
    os.utime(words, (9, 9))
    assert is_current(tmp_path, [corpus])
    words.write_text("- experiment=demo\n- seed=2\n", encoding="utf-8")
    assert not is_current(tmp_path, [corpus])
    words.write_text("- experiment=demo\n", encoding="utf-8")
    result.unlink()  # not finished
    assert not is_current(tmp_path, [corpus])


@pytest.mark.parametrize("words", ["--version", "-V", "version", "generate --version"])
def test_the_command_says_its_version(capfd, words):
    assert main(words.split()) == 0
    assert capfd.readouterr().out == f"seqattn {seqattn.__version__}\n"


@pytest.mark.parametrize("words", ["help serve", "--help serve", "serve help", "serve -h"])
def test_help_is_asked_for_in_any_order(capfd, words):
    assert main(words.split()) == 0
    assert capfd.readouterr().out.startswith("usage: seqattn serve [key=value ...]\n")


def test_help_without_a_subcommand_lists_the_subcommands(capfd):
    assert len(subcommands()) == 24
    assert max(map(len, subcommands().values())) < 90
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        assert main(arguments) == 0
        out = capfd.readouterr().out
        assert all(f"\n  {subcommand} " in out for subcommand in subcommands())


def test_cfg_job_prints_every_key_with_its_value(capfd):
    out = succeed(capfd, "train", "--cfg", "job", "attention=gqa", "model.dim=48")
    settings = yaml.safe_load(out)
    assert (settings["attention"]["num_kv_heads"], settings["model"]["dim"]) == (2, 48)
    assert {"loader", "checkpoint", "trainer", "logger", "schedule"} <= settings.keys()


@pytest.mark.slow
def test_a_sweep_makes_a_run_for_each_job(capfd, corpus, tmp_path):
    run_dir = tmp_path / "sweep"
    words = ("attention=mha,gqa", "trainer.fast_dev_run=true", f"run_dir={run_dir}")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, *words))
    assert ended.code == 0, ended.err
    names = sorted(path.name for path in run_dir.iterdir())
    assert names == ["0", "1", "jobs.tsv", "multirun.yaml"]
    configs = [yaml.safe_load((run_dir / job / "config.yaml").read_text()) for job in ("0", "1")]
    assert [config["choices"]["attention"] for config in configs] == ["mha", "gqa"]
    assert [config["sweep"] for config in configs] == ["sweep", "sweep"]


@pytest.mark.slow
def test_a_job_of_a_sweep_that_fails_is_named_and_the_others_run(capfd, corpus, tmp_path):
    run_dir = tmp_path / "sweep"
    words = ("attention.num_heads=3,2", "trainer.fast_dev_run=true", f"run_dir={run_dir}")
    ended = run(capfd, "train", "-m", *train_arguments(corpus, *words))
    assert ended.code == 2
    assert "job 0: attention.num_heads must divide model.dim (16), got 3" in ended.err
    assert ended.err.splitlines()[-1] == "error: job 0 failed (message above)"
    assert sorted(path.name for path in run_dir.iterdir()) == ["1", "jobs.tsv", "multirun.yaml"]


@pytest.mark.parametrize("words", ["", "--version", "train --help", "train --hydra-help"])
def test_pages_of_help_end_quietly_in_a_pipe_that_is_closed(words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "seqattn", *words.split()]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_sentence_waits_for_no_package_of_scores_plots_and_training(bundle):
    code = """
import sys
from seqattn.cli.main import run_subcommand
assert run_subcommand("generate", [sys.argv[1], "text=dog", "generation=beam"]) == 0
slow = {"datasets", "lightning", "matplotlib", "pandas", "scipy", "torchmetrics", "transformers"}
sys.exit(", ".join(slow & {*sys.modules}) or 0)
"""
    command = [sys.executable, "-c", code, bundle]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_closes_early_is_no_error(bundle, corpus, tmp_path):
    process = start_forked("generate", [bundle, f"input={corpus / 'train.en'}"], tmp_path)
    process.out.close()
    assert process.ended() == (0, "", "")


@pytest.mark.parametrize(
    ("subcommand", "words", "key"),
    [
        ("generate", "bundle=RUN", "bundle"),
        ("generate", "bundle=RUN ensemble=[RUN]", "ensemble"),
        ("generate", "bundle=RUN rerank.bundle=RUN", "rerank.bundle"),
        ("report", "output=OUT bundle=RUN bundles=[RUN,RUN/model]", "bundles"),
        ("explain", "bundles=[RUN]", "bundles"),
        ("train", "init_from=RUN", "init_from"),
        ("prepare", "output=OUT vocabulary=RUN", "vocabulary"),
    ],
)
def test_a_run_stands_for_its_bundle(trained, subcommand, words, key):
    settings, _ = composed(subcommand, *words.replace("RUN", str(trained)).split())
    value = OmegaConf.select(OmegaConf.create(settings), key)
    values = [value] if isinstance(value, str) else value
    assert set(values) == {f"{trained}/model"}


def test_a_run_with_weights_beside_it_is_a_bundle(tmp_path):
    """A bundle that holds another one, named model, is itself."""
    (tmp_path / "model").mkdir()
    for folder in (tmp_path, tmp_path / "model"):
        (folder / "model.safetensors").touch()
    assert bundle_dir(tmp_path) == tmp_path
