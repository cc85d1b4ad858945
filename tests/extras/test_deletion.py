"""Each extra can be deleted: the core works without it, and its subcommands say what is missing."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from seqattn import extras
from seqattn.cli.help_page import subcommands as names_of_subcommands
from seqattn.config.subcommand import read_subcommand
from seqattn.installation import CONF
from tests.absent import printed_without
from tests.cli.small import train_arguments

PROGRAM = """
import json
from seqattn.cli.main import run_subcommand

print(json.dumps([run_subcommand(subcommand, words) for subcommand, words in {commands!r}]))
"""
TARGETS = {name: read_subcommand(name).target.split(".") for name in names_of_subcommands()}
OF_SUBCOMMANDS = {
    name: parts[2] if parts[1] == "extras" else None for name, parts in TARGETS.items()
}
EXTRAS = sorted(path.parent.name for path in Path(extras.__file__).parent.glob("*/__init__.py"))
BUNDLE = Path(__file__).parents[1] / "golden" / "bundle"
GROUPS = ("attention", "data", "generation", "loader", "model", "noise", "task", "watch")
"""Groups of `train` in which extras have choices."""


def needs(extra):
    return import_module(f"seqattn.extras.{extra}").NEEDS


def codes(absent, commands):
    """Return the exit codes of commands where some extras are not there."""
    names = [f"seqattn.extras.{extra}" for extra in absent]
    return json.loads(printed_without(names, PROGRAM.format(commands=commands)).splitlines()[-1])


@pytest.mark.slow
def test_the_core_trains_generates_and_evaluates_without_any(corpus, tmp_path):
    bundle = f"bundle={tmp_path}/run/model"
    commands = [
        ("train", train_arguments(corpus, f"run_dir={tmp_path}/run", draws=True)),
        ("generate", [bundle, f"input={corpus}/test.en", f"output={tmp_path}/outputs"]),
        ("evaluate", [bundle, f"output={tmp_path}/scores"]),
    ]
    assert codes(EXTRAS, commands) == [0] * len(commands)
    assert len((tmp_path / "outputs").read_text().splitlines()) == 5
    assert not (tmp_path / "run" / "heatmaps").exists()  # `watch` is left out


def choices_of(extra):
    """Choices of `train` that an extra has."""
    for group in GROUPS:
        for file in sorted((CONF / group).glob("[!_]*.yaml")):
            if f"_target_: seqattn.extras.{extra}." in file.read_text(encoding="utf-8"):
                yield f"{group}={file.stem}"


@pytest.mark.parametrize("extra", EXTRAS)
def test_subcommands_and_choices_say_which_extra_is_missing(extra, corpus, tmp_path):
    commands = [
        (subcommand, [])
        for subcommand, of in OF_SUBCOMMANDS.items()
        if of and extra in (of, *needs(of))
    ]
    told = [f"error: {subcommand} needs seqattn.extras.{extra}," for subcommand, _ in commands]
    if extra == "quality":  # a choice of `generate`, which reads its bundle first
        commands.append(("generate", [f"bundle={BUNDLE}", "text=a", "quality=true"]))
        told.append("error: ")
    if extra == "sentences":  # which is left out unless it is chosen
        commands.append(("generate", [f"bundle={BUNDLE}", "text=a", "sentences=de"]))
        told.append("error: ")
    if extra == "files":
        commands.append(("generate", [f"bundle={BUNDLE}", "text=a", "files=auto"]))
        told.append("error: ")
    if extra == "exchange":
        commands.append(("evaluate", ["bundle=hf://a/b"]))
        told.append("error: hf://a/b needs")
    if extra == "documents":
        words = train_arguments(corpus, "data.documents=lines", f"run_dir={tmp_path}/run")
        commands.append(("train", words))
        told.append("error: data.documents")
    for word in choices_of(extra):
        commands.append(("train", [word]))
        told.append("error: ")
    assert commands
    program = PROGRAM.format(commands=commands)
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    *lines, returned = printed_without([f"seqattn.extras.{extra}"], program).splitlines()
    assert json.loads(returned) == [2] * len(commands)
    for line, begins in zip(lines, told, strict=True):
        assert line.startswith(begins)
        assert line.endswith(f" needs seqattn.extras.{extra}, which is not installed")
