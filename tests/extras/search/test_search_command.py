"""The subcommand search."""

import shlex

import pytest

from seqattn.cli.main import run_subcommand
from seqattn.extras.search.search import ModelSearch
from seqattn.extras.search.search_study import Halving
from seqattn.installation import install
from seqattn.settings.nodes import build
from tests.absent import printed_without
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
    ("space.attention=[mha] space.width=[7]", "num_heads must divide model.dim (7), got "),
    ("space.width=[7]", "needs an even head width, got 7"),
    ("space.attention=[mha] space.heads=[3,5]", "num_heads must divide model.dim (16), got "),
    (
        "space.attention=[gqa] space.kv_heads=[3]",
        "attention.num_kv_heads must divide attention.num_heads",
    ),
    ("space.attention=[mha] space.heads=[16] space.position=[rope]", "needs an even head width"),
    ("space.attention=[linear] space.position=[t5]", "attention=linear does not support"),
    ("space.attention=[mha] space.without=[mha]", "models: 1 of 0 combinations"),
    ("space.attention=[mha] space.heads=null space.position=null", "models: 1 of 1 com"),
    ("model=rnn space.attention=[mha]", "model=NAME does not support attention=NAME; use model="),
]


@pytest.mark.parametrize(("words", "why"), sampled(IMPOSSIBLE, every=4))
def test_a_space_without_a_second_model_is_refused_before_any_training(
    words, why, capfd, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(Halving, "try_models", lambda race: pytest.fail("it trains"))
    given = train_arguments(corpus, draws=True)
    given = [word for word in given if "rnn" not in words or "ffn" not in word]
    told = refusal(capfd, "search", *given, *words.split(), f"run_dir={tmp_path}/found")
    assert told.startswith("the space contains only one valid model; ")
    assert why in told
    assert not (tmp_path / "found").exists()


def test_a_search_without_optuna_says_how_to_install_it(corpus, tmp_path):
    words = [
        *train_arguments(corpus, f"run_dir={tmp_path}/found", draws=True),
        "space.attention=[mha,mqa]",
    ]
    program = f"""
import sys
from seqattn.cli.main import run_subcommand
sys.stderr = sys.stdout
print(run_subcommand("search", {words!r}))
"""
    line = f"error: search needs optuna; {install('search')}"
    assert printed_without(("optuna",), program).splitlines() == [line, "2"]
    assert not (tmp_path / "found").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranges", [False, True])
def test_a_search_ends_in_a_report_and_the_command_that_trains_the_best(
    capfd, corpus, tmp_path, ranges
):
    home = tmp_path / "found"
    varied = (
        ["space.attention=[]", "space.ranges={optimizer.lr:[0.0001,0.1]}", "budget.candidates=4"]
        if ranges
        else ["space.attention=[mha,mqa,bigbird]", "space.heads=[2,3]", "space.position=[rope]"]
    )
    words = [
        *train_arguments(corpus, draws=True), *varied, "budget.first_steps=10", "budget.steps=30",
        "budget.finalists=2", "jobs=2", f"run_dir={home}",
    ]  # fmt: skip
    out = succeed(capfd, "search", *words)
    assert (home / "finalists" / "index.html").is_file()
    report = (home / "report.md").read_text()
    assert "tried 4 models in " in report
    assert ranges or "2 skipped: attention.num_heads must divide model.dim (16), got 3" in report
    command = out.split("train it in full with: python train.py ")[1].splitlines()[0]
    given = [*shlex.split(command), "trainer.max_steps=4", f"run_dir={tmp_path}/run"]
    assert run_subcommand("train", given) == 0
    trained = set(home.glob("trials/*/checkpoints/*"))
    succeed(capfd, "search", *words)  # which trains nothing
    assert set(home.glob("trials/*/checkpoints/*")) == trained
    told = refusal(capfd, "search", *words, "space.depth=[2]")
    assert told.startswith(f"run_dir={home} holds a search with different space; use the same, or")
    journal = home / "journal.log"
    journal.write_bytes(b"\x80\x04" + journal.read_bytes())
    told = refusal(capfd, "search", *words)
    assert told == f"{journal} is damaged; choose another run_dir"
