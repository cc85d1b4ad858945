"""Recurrent models on the command line: trained, resumed, generating, scored, looked into."""

import json

import pytest
import yaml

import seqattn
from tests.cli.small import (
    checkpoint,
    groups,
    json_lines,
    logged,
    refusal,
    refused_before_work,
    succeed,
    train_arguments,
    write_corpus,
)
from tests.models.recurrents import OF_EXTRAS

LUONG = [f"luong_{kind}" for kind in ("concat", "dot", "general", "local_m", "local_p", "scaled")]
OURS = sorted(["bahdanau", *LUONG, "none", *OF_EXTRAS])


def small(root, *overrides, **sizes):
    words = train_arguments(root, "model=rnn", *overrides, **sizes)
    return [word for word in words if not word.startswith("model.ffn_dim")]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("recurrent") / "data")


@pytest.mark.parametrize("attention", [None, "none"])
def test_a_recurrent_model_goes_all_the_way(root, tmp_path, capfd, attention):
    run, choice = tmp_path / "run", [f"attention={attention}"] if attention else []
    succeed(capfd, "train", *small(root, *choice, f"run_dir={run}"))
    bundle = f"bundle={run / 'model'}"
    config = yaml.safe_load((run / "model" / "config.yaml").read_text())
    assert config["choices"]["attention"] == (attention or "bahdanau")
    assert config["choices"]["position"] == "none"
    source = root / "test.en"
    rows = succeed(capfd, "generate", bundle, f"input={source}", "n_best=2", "format=jsonl")
    found = json_lines(rows)
    assert len(found) == 2 * len(source.read_text().splitlines())
    succeed(capfd, "evaluate", bundle, f"output={tmp_path / 'scores'}")
    scores = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert 0 <= scores["scores"]["BLEU"]["value"] <= 100
    words = ["text=a dog sees a ball .", f"output={tmp_path / 'seen'}"]
    out = succeed(capfd, "analyze", bundle, *words)
    assert ("none (no attention weights to show)" in out) == (attention == "none")
    pictures = ["cross.png"] if attention != "none" else []
    assert sorted(p.name for p in (tmp_path / "seen").glob("*.png")) == pictures
    model = seqattn.load(str(run / "model"))
    assert len(model.generate(["a dog sees a ball ."])) == 1


def test_scheduled_sampling_trains_and_its_share_is_logged(root, tmp_path, capfd):
    run = tmp_path / "run"
    schedule = ["task.teacher_forcing.schedule=linear", "task.teacher_forcing.steps=3"]
    words = small(root, *schedule, "trainer.log_every_n_steps=1", f"run_dir={run}")
    succeed(capfd, "train", *words)
    assert checkpoint(run)["global_step"] == 4
    told = [row["train/teacher_forcing"] for row in logged(run)]
    shares = [float(share) for share in told if share]
    assert shares == pytest.approx([1, 2 / 3, 1 / 3, 0], abs=1e-5)


def test_a_recurrent_model_refuses_what_does_not_fit_and_names_what_does(root, capfd):
    refused = refused_before_work
    fits = ", ".join(OURS)
    others = ", ".join(name for name in groups()["attention"] if name not in OURS)
    line = refused("model=rnn", "attention=gqa")
    assert line.startswith("model=rnn does not support attention=gqa; use ")
    assert line.endswith(f"model=transformer, or choose from {fits}")
    assert refused("attention=bahdanau") == (
        "model=transformer does not support attention=bahdanau; use model=rnn, or choose from "
        f"{others}"
    )
    assert refused("attention@cross_attention=none") == (
        f"model=transformer does not support attention@cross_attention=none; choose from {others}"
    )
    only = f"model=rnn has one attention; set attention=NAME, choosing from {fits}"
    assert refused("model=rnn", "attention@cross_attention=mha") == only
    assert refused("model=rnn", "attention=[bahdanau,luong_dot]") == only
    assert refused("model=rnn", "position=rope") == (
        "model=rnn encodes positions by recurrence and does not support position=rope; remove "
        "it, or set position=none"
    )
    assert refusal(capfd, "train", *train_arguments(root, "task.teacher_forcing.start=0.5")) == (
        "task.teacher_forcing below 1 needs a recurrent model, such as model=rnn; set "
        "task.teacher_forcing.schedule=constant task.teacher_forcing.start=1"
    )
    assert refused(*small(root, "attention=luong_dot", "model.decoder_dim=12")) == (
        "attention.score=dot needs model.decoder_dim equal to model.encoder_dim, got 12 and 16; "
        "make them equal, or set attention.score=general"
    )
