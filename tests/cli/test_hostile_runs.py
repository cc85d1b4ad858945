"""Runs and bundles of somebody else are data: what they hold is read, and none of it runs."""

import shutil

import pytest
import yaml

from seqattn.config.overrides import complete
from seqattn.config.subcommand import read_subcommand
from seqattn.errors import UserError
from seqattn.training.result import TrainingResult
from seqattn.training.resume import settings_before
from tests.cli.small import run

MADE = "{_target_: os.mkdir, path: ran}"
HOSTILE = {
    "not a training key": [
        f"+hydra.callbacks.x={MADE}", f"++hydra.callbacks.x={MADE}", "hydra/launcher=basic",
        "hydra.run.dir=x", "+hydra.searchpath=[file:///x]", "+defaults=[evil]", "~hydra", "+a.b=1",
        "+position@hydra.callbacks.z=none", "+hydra/callbacks@hydra.callbacks.z=x",
        "+logger.csv._args_=[x]", "+callbacks/x=y", "+model.extra={a: {_args_: [1]}}",
    ],
    "is not allowed there; add trust=[os]": [
        f"+callbacks.x={MADE}", "++callbacks.x._target_=os.mkdir", "model._target_=os.mkdir",
        "+model.extra={a: {b: [{_target_: os.mkdir}]}}", "attention.kernel._target_=os.mkdir",
        "+generation.processors.x={_target_: os.mkdir}", "task.scorer._target_=os.mkdir",
    ],
    "is not allowed there": [
        "logger.csv._target_=seqattn.storage.write_whole", "model._target_=${name}",
        "+logger.z={_target_: lightning.pytorch.loggers.CSVLogger}", "model._target_=null",
    ],
    "not a choice name": [
        "position=../../../x", "experiment=[../x]", "position=/x", "processor=['${oc.env:HOME}']",
        f"optimizer={MADE}", "attention@encoder_attention=../x",
    ],
    "uses a resolver": [
        "name=${oc.env:HOME}", "name=x${oc.env:HOME}", "logger.csv.save_dir=${hydra:runtime.cwd}",
        "+model.x=[1,{a: '${oc.env:HOME}'}]", "model.dim=${oc.decode:'3'}",
    ],
    "cannot be parsed": ["name=${oc.env:A,${oc.env:B}}${", "a", "callbacks={x: {'_target_': y}}"],
    "a run cannot set": ["trust=[os]", "++trust=[os]"],
    "several values": ["model.dim=1,2", "seed=choice(1,2)", "seed=range(3)"],
}  # fmt: skip


@pytest.fixture(scope="module")
def copied(trained, tmp_path_factory):
    """A copy of a run of four steps."""
    return shutil.copytree(trained, tmp_path_factory.mktemp("theirs") / "run")


def resumed(home, override, *typed):
    """A user's words and those of a run, which holds an override."""
    (home / "overrides.yaml").write_text(yaml.safe_dump(["model.dim=16", override]))
    return complete(read_subcommand("train"), [f"resume={home}", *typed])


@pytest.mark.parametrize(
    ("override", "reason"), [(one, reason) for reason, some in HOSTILE.items() for one in some]
)
def test_an_override_of_a_run_that_could_run_something_is_refused(override, reason, tmp_path):
    with pytest.raises(UserError) as refused:
        resumed(tmp_path, override)
    assert reason in str(refused.value)
    assert str(tmp_path / "overrides.yaml") in str(refused.value)


def test_what_a_user_trusts_or_types_is_taken(tmp_path):
    mine = "+callbacks.x={_target_: mine.Callback, _partial_: true}"
    assert mine in resumed(tmp_path, mine, "trust=[mine]")
    assert "trust=[mine]" in resumed(tmp_path, "trust=[os]", "trust=[mine]")
    typed = "+callbacks.x={_target_: os.mkdir}"
    assert resumed(tmp_path, f"+{typed}", typed)[-1] == typed
    with pytest.raises(UserError, match="is not allowed there"):
        resumed(tmp_path, "+callbacks.x={_target_: minestrone.X}", "trust=[mine]")


@pytest.mark.parametrize(
    "override",
    [
        "model.ffn_dim=${model.dim}", "attention@encoder_attention=null", "attention=[mha,gqa]",
        "+model.note='two words'", "~callbacks", "logger=[]", "callbacks.ema.decay=0.9",
        "data.files.train='a b.jsonl'", "position=rope",
        "attention.kernel._target_=seqattn.attention.kernels.softmax.SoftmaxKernel",
    ],
)  # fmt: skip
def test_overrides_that_set_values_are_taken(override, tmp_path):
    assert override in resumed(tmp_path, override)


def test_a_run_cannot_move_itself_or_go_on_with_another(tmp_path):
    for override in ("++run_dir=/elsewhere", "+resume=/other", "++find_lr=true"):
        assert override not in resumed(tmp_path, override)


def test_nothing_of_a_hostile_run_is_run(capfd, copied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for override in (f"+hydra.callbacks.x={MADE}", f"+callbacks.x={MADE[:-1]}, _partial_: true}}"):
        (copied / "overrides.yaml").write_text(yaml.safe_dump([override]))
        assert run(capfd, "train", f"resume={copied}", "trainer.max_steps=5").code == 2
    assert not (tmp_path / "ran").exists()


def with_defaults(home):
    file = home / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["generation"]["defaults"] = ["../../../evil"]
    file.write_text(yaml.safe_dump(config))


def test_a_bundle_names_no_files_for_hydra(copied):
    with_defaults(copied / "model")
    with pytest.raises(UserError, match="generation must be a config node without defaults"):
        complete(read_subcommand("generate"), [f"bundle={copied}/model"])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model", {"_target_": "os.mkdir", "path": "ran"}, "model names 'os.mkdir'"),
        ("attention", {"kernel": {"_target_": "os.mkdir"}}, "attention.kernel names 'os.mkdir'"),
        ("position", {"a": "${oc.env:HOME}"}, "position.a must be plain text"),
        ("model", {"defaults": ["../x"]}, "model must be a config node without defaults"),
        ("choices", ["x"], "cannot read"),
    ],
)
def test_a_run_from_a_bundle_names_classes_of_ours_alone(trained, tmp_path, key, value, reason):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, key: value}))
    with pytest.raises(UserError, match=reason):
        resumed(tmp_path, "init_from=/some/bundle")


BOMB = "a: &a [x]\nb: &b [*a,*a]\nc: [*b,*b]\n"


@pytest.mark.parametrize("content", ["[" * 9000, "a: 2001-99-99", BOMB, "a: !!python/x y", "\0"])
def test_damaged_yaml_of_a_run_is_one_line(content, tmp_path):
    for name in ("config.yaml", "overrides.yaml", "result.yaml"):
        (tmp_path / name).write_text(content)
    readers = [
        lambda: settings_before(tmp_path, "it"),
        lambda: complete(read_subcommand("train"), [f"resume={tmp_path}"]),
        lambda: TrainingResult.load(tmp_path),
    ]
    for reader in readers:
        with pytest.raises(UserError, match=r"(cannot (be )?read|must be|YAML)"):
            reader()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", [1]), ("seed", None), ("threads", -1), ("threads", "many"), ("loader", None),
        ("trainer", []), ("choices", {"a": []}), ("data", "x"), ("generation", 3),
    ],
)  # fmt: skip
def test_settings_of_other_kinds_are_a_damaged_run(trained, tmp_path, key, value):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**config, key: value}))
    with pytest.raises(UserError, match=r"config.yaml; start a new run"):
        settings_before(tmp_path, "it")
