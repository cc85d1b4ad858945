"""Each extra can be deleted: the core works without it, and its subcommands say what is missing."""

import json
from importlib import import_module

import pytest

from seqattn.cli.help_page import subcommands as names_of_subcommands
from seqattn.cli.subcommands import extra_of
from tests.absent import printed_without
from tests.cli.small import train_arguments

PROGRAM = """
import json
from seqattn.cli.main import run_subcommand

print(json.dumps([run_subcommand(subcommand, words) for subcommand, words in {commands!r}]))
"""
OF_SUBCOMMANDS = {subcommand: extra_of(subcommand) for subcommand in names_of_subcommands()}
EXTRAS = sorted(set(filter(None, OF_SUBCOMMANDS.values())))
WITHOUT_SUBCOMMANDS = ["answers", "mixers", "transduction"]


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
    assert codes([*EXTRAS, *WITHOUT_SUBCOMMANDS], commands) == [0] * len(commands)
    assert len((tmp_path / "outputs").read_text().splitlines()) == 5
    assert not (tmp_path / "run" / "heatmaps").exists()  # `watch` is left out


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_subcommand_says_which_extra_is_missing(extra, capfd):
    subcommands = [
        subcommand for subcommand, of in OF_SUBCOMMANDS.items() if of and extra in (of, *needs(of))
    ]
    program = (
        PROGRAM.format(commands=[(subcommand, []) for subcommand in subcommands]) + "import sys\n"
    )
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    told = printed_without([f"seqattn.extras.{extra}"], program).splitlines()
    line = f"error: SUBCOMMAND needs seqattn.extras.{extra}, which is not installed"
    assert told == [
        *(line.replace("SUBCOMMAND", subcommand) for subcommand in subcommands),
        json.dumps([2] * len(subcommands)),
    ]
