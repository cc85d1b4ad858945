"""Each extra can be deleted: the core works without it, and its verbs say what is missing."""

import json
from importlib import import_module

import pytest

from seqattn.cli.help_page import verbs as names_of_verbs
from seqattn.cli.verbs import extra_of
from tests.absent import printed_without
from tests.cli.small import train_arguments

PROGRAM = """
import json
from seqattn.cli.main import run_verb

print(json.dumps([run_verb(verb, words) for verb, words in {commands!r}]))
"""
OF_VERBS = {verb: extra_of(verb) for verb in names_of_verbs()}
EXTRAS = sorted(set(filter(None, OF_VERBS.values())))


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
        ("train", train_arguments(corpus, f"run_dir={tmp_path}/run")),
        ("generate", [bundle, f"input={corpus}/test.en", f"output={tmp_path}/outputs"]),
        ("evaluate", [bundle, f"output={tmp_path}/scores"]),
    ]
    assert codes([*EXTRAS, "mixers"], commands) == [0] * len(commands)
    assert len((tmp_path / "outputs").read_text().splitlines()) == 5
    assert not (tmp_path / "run" / "heatmaps").exists()  # `watch` is left out


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_verb_says_which_extra_is_missing(extra, capfd):
    verbs = [verb for verb, of in OF_VERBS.items() if of and extra in (of, *needs(of))]
    program = PROGRAM.format(commands=[(verb, []) for verb in verbs]) + "import sys\n"
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    told = printed_without([f"seqattn.extras.{extra}"], program).splitlines()
    line = f"error: VERB needs seqattn.extras.{extra}, which is not installed"
    assert told == [*(line.replace("VERB", verb) for verb in verbs), json.dumps([2] * len(verbs))]
