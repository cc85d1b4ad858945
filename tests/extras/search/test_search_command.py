"""The verb search."""

import json
import shlex

import pytest
import yaml
from seqattn.extras.search.search_halving import Halving
from seqattn.extras.search.search_trials import Rung

from seqattn.bundle.nodes import build
from seqattn.cli.main import run_verb
from seqattn.errors import UserError
from seqattn.extras.search.search import ModelSearch
from seqattn.extras.search.search_budget import Budget
from tests.cli.small import composed, refusal, sampled, succeed, train_arguments
from tests.pages import commands


@pytest.mark.parametrize("command", commands("seqattn search", "README.md", "search.md"))
def test_the_commands_of_the_pages_are_searches(command):
    settings = composed("search", *shlex.split(command)[2:])[0]
    assert build(settings["budget"]).finalists == 3
    assert build(settings["space"]).without == ["ring"]
    assert settings["run_dir"] == f"searches/{settings['name']}"


def test_trials_have_the_folders_of_choices_that_are_typed(capfd, tmp_path, monkeypatch):
    for name in ("own", "more"):
        (tmp_path / name).mkdir()
    seen = []
    monkeypatch.setattr(ModelSearch, "run", lambda self: seen.extend(self.options))
    options = ["--config-dir", f"{tmp_path}/own", f"hydra.searchpath=[file://{tmp_path}/more]"]
    succeed(capfd, "search", *options, f"run_dir={tmp_path}/search")
    assert seen == options


IMPOSSIBLE = [
    ("space.attention=[mha] space.width=[7]", "num_heads must divide query_dim (7), got "),
    ("space.attention=[mha] space.heads=[3,5]", "num_heads must divide query_dim (16), got "),
    ("space.attention=[gqa] space.kv_heads=[3]", "num_kv_heads must divide num_heads"),
    ("space.attention=[mha] space.heads=[16] space.position=[rope]", "needs an even head width"),
    ("space.attention=[linear] space.position=[t5]", "cannot use"),
    ("space.attention=[mha] space.without=[mha]", "1 models are tried, of 0 combinations"),
    ("space.attention=[mha] space.heads=null space.position=null", "1 models are tried, of 1 com"),
    ("model=rnn space.attention=[mha]", "model=NAME cannot use attention=NAME; it takes"),
]


@pytest.mark.parametrize(("words", "why"), sampled(IMPOSSIBLE, every=4))
def test_a_space_without_a_second_model_is_refused_before_any_training(
    words, why, capfd, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(Halving, "try_out", lambda race: pytest.fail("it trains"))
    given = [word for word in train_arguments(corpus) if "rnn" not in words or "ffn" not in word]
    told = refusal(capfd, "search", *given, *words.split(), f"run_dir={tmp_path}/found")
    assert told.startswith("the space holds no second model that can be; ")
    assert why in told
    assert not (tmp_path / "found").exists()


def test_a_budget_that_is_refused_after_the_pilot_binds_nobody(capfd, corpus, tmp_path):
    source = {"_target_": "seqattn.data.sources.ParallelText", "root": str(corpus),
              "source_suffix": "en", "target_suffix": "de"}  # fmt: skip
    given = {"run_dir": str(tmp_path), "settings": {"data": source}, "overrides": ["a=1"]}
    before = ModelSearch(**given)._state(tmp_path)
    before.pilot = {"step": 1.0}
    (tmp_path / "trials.json").write_text(before.model_dump_json())
    others = {"budget": Budget(minutes=60), "seed": 2}
    assert ModelSearch(**given, **others)._state(tmp_path).pilot == {"step": 1.0}
    with pytest.raises(UserError, match="holds a search with other overrides; give the same"):
        ModelSearch(**{**given, "overrides": ["a=2"]})._state(tmp_path)
    before.rungs = [Rung(steps=3)]
    (tmp_path / "trials.json").write_text(before.model_dump_json())
    with pytest.raises(UserError, match="holds a search with other budget, seed; give the same"):
        ModelSearch(**given, **others)._state(tmp_path)
    source["source_suffix"] = "de"  # other contents
    with pytest.raises(UserError, match="holds a search with other data; give the same"):
        ModelSearch(**given)._state(tmp_path)


@pytest.mark.exhaustive
def test_a_search_ends_in_a_report_and_an_experiment_that_trains(capfd, corpus, tmp_path):
    home = tmp_path / "found"
    words = [
        *(word for word in train_arguments(corpus) if not word.startswith("trainer.max")),
        "space.attention=[mha,mqa,bigbird]", "space.heads=[2,3]", "space.position=[rope]",
        "budget.steps=[20,40]", "budget.finalists=2", "jobs=2", f"run_dir={home}",
    ]  # fmt: skip
    out = succeed(capfd, "search", *words)
    state = json.loads((home / "trials.json").read_text())
    assert [len(rung["trials"]) for rung in state["rungs"]] == [4, 4]
    assert {trial["state"] for trial in state["trials"].values()} <= {"going", "stopped"}
    assert all((home / name).is_file() for name in ("report.md", "front.png", "curves.png"))
    assert "3 left out: num_heads must divide query_dim (16), got 3" in state["drawn"]
    page = (home / "report.html").read_text()
    assert "the best is " in page
    assert "data:image/png;base64," in page
    command = f"--config-dir {home}/conf experiment=found"
    assert f"to train it in full: python train.py {command}" in out
    given = [*command.split(), "trainer.max_steps=4", f"run_dir={tmp_path}/run"]
    assert run_verb("train", given) == 0
    best = out.split("the best is ")[1].split()[0]
    chosen = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["choices"]
    slots = (chosen["attention"], chosen.get("attention@encoder_attention"))
    assert best in slots or best == "as"
    trained = set(home.glob("trials/*/checkpoints/*"))
    succeed(capfd, "search", *words)  # which trains nothing
    assert set(home.glob("trials/*/checkpoints/*")) == trained
    told = refusal(capfd, "search", *words, "space.heads=[2]")
    assert told.startswith(f"run_dir={home} holds a search with other space; give the same, or")
